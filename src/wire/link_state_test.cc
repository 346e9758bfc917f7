#include "wire/link_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "base/limits.h"

namespace xmpi::wire {
namespace {

constexpr std::size_t kBudget = 64u << 10;

// One end with what it sent and got, and the bytes on their way to the other end.
struct End {
  LinkState state{42};
  FrameDecoder decoder;
  std::string on_the_way;
  std::map<Channel, std::vector<std::string>> sent;
  std::map<Channel, std::vector<std::string>> got;
  std::size_t undone = 0;

  void Send(Channel channel, std::string payload) {
    if (state.Send(channel, payload)) sent[channel].push_back(std::move(payload));
  }
  Result<> Receive(std::string_view bytes) {
    decoder.Feed(bytes);
    for (;;) {
      XMPI_ASSIGN_OR_RETURN(auto frame, decoder.Next());
      if (!frame) return {};
      XMPI_ASSIGN_OR_RETURN(auto delivery, state.OnFrame(std::move(*frame)));
      if (!delivery) continue;
      if (delivery->channel == Channel::kStdio) ++undone;
      got[delivery->channel].push_back(std::move(delivery->payload));
    }
  }
  void Done() {
    state.StdioDone(undone);
    undone = 0;
  }
};

struct Pair {
  End a;
  End b;

  void Connect() {
    for (End* end : {&a, &b}) {
      end->state.OnConnect();
      end->decoder = {};
      end->on_the_way.clear();
    }
  }
  // Moves up to `bytes` from one end to the other.
  Result<> Move(End* from, End* to, std::size_t bytes) {
    from->on_the_way += from->state.TakeWrite(kBudget);
    const std::string piece = from->on_the_way.substr(0, bytes);
    from->on_the_way.erase(0, piece.size());
    return to->Receive(piece);
  }
  void Cut() {
    for (End* end : {&a, &b}) end->state.OnDisconnect();
  }
  void Settle() {
    for (int quiet = 0; quiet < 3;) {
      const std::size_t before = a.got[Channel::kControl].size() + b.got[Channel::kControl].size() +
                                 a.got[Channel::kStdio].size() + b.got[Channel::kStdio].size();
      ASSERT_TRUE(Move(&a, &b, SIZE_MAX));
      ASSERT_TRUE(Move(&b, &a, SIZE_MAX));
      a.Done();
      b.Done();
      const std::size_t after = a.got[Channel::kControl].size() + b.got[Channel::kControl].size() +
                                a.got[Channel::kStdio].size() + b.got[Channel::kStdio].size();
      quiet = before == after ? quiet + 1 : 0;
    }
  }
};

FrameKind KindAt(std::string_view bytes, std::size_t at) {
  return static_cast<FrameKind>(bytes[at + 5]);
}

TEST(LinkState, NothingButHelloBeforeThePeersHello) {
  Pair pair;
  pair.a.Send(Channel::kControl, "x");
  EXPECT_EQ(pair.a.state.TakeWrite(kBudget), "");
  pair.Connect();
  const std::string bytes = pair.a.state.TakeWrite(kBudget);
  EXPECT_EQ(bytes.size(), kFrameHeaderBytes + 24);
  EXPECT_EQ(KindAt(bytes, 0), FrameKind::kHello);
  EXPECT_EQ(pair.a.state.TakeWrite(kBudget), "");
}

TEST(LinkState, TheDialledEndTakesTheFirstSessionOnly) {
  LinkState dialled(0);
  EXPECT_TRUE(dialled.Send(Channel::kControl, "x"));
  dialled.OnConnect();
  EXPECT_EQ(dialled.TakeWrite(kBudget), "");
  EXPECT_FALSE(dialled.OnFrame({FrameKind::kHello, 0, EncodeReceived({})}));
  EXPECT_TRUE(dialled.OnFrame({FrameKind::kHello, 5, EncodeReceived({})}));
  EXPECT_EQ(dialled.TakeWrite(kBudget).size(), 2 * kFrameHeaderBytes + 24 + 1);
  dialled.OnConnect();
  EXPECT_FALSE(dialled.OnFrame({FrameKind::kHello, 6, EncodeReceived({})}));
}

TEST(LinkState, ControlOvertakesQueuedStdio) {
  Pair pair;
  pair.Connect();
  pair.Settle();
  for (int i = 0; i < 16; ++i) pair.a.Send(Channel::kStdio, std::string(60000, 'o'));
  const std::string flood = pair.a.state.TakeWrite(kBudget);
  EXPECT_LE(flood.size(), 2 * kBudget);
  pair.a.Send(Channel::kControl, "notice");
  const std::string next = pair.a.state.TakeWrite(kBudget);
  EXPECT_EQ(KindAt(next, 0), FrameKind::kControl);
  EXPECT_EQ(KindAt(next, kFrameHeaderBytes + 6), FrameKind::kStdio);
}

TEST(LinkState, ALongControlQueueStarvesStdioNotViceVersa) {
  Pair pair;
  pair.Connect();
  pair.Settle();
  pair.a.Send(Channel::kStdio, "o");
  for (int i = 0; i < 4; ++i) pair.a.Send(Channel::kControl, std::string(50000, 'c'));
  for (int i = 0; i < 2; ++i) {
    const std::string bytes = pair.a.state.TakeWrite(kBudget);
    EXPECT_EQ(KindAt(bytes, 0), FrameKind::kControl);
    EXPECT_EQ(KindAt(bytes, kFrameHeaderBytes + 50000), FrameKind::kControl);
  }
  EXPECT_EQ(pair.a.state.TakeWrite(kBudget).size(), kFrameHeaderBytes + 1);
}

TEST(LinkState, WindowStopsStdioUntilItIsWrittenOut) {
  Pair pair;
  pair.Connect();
  pair.Settle();
  for (int i = 0; i < 40; ++i) pair.a.Send(Channel::kStdio, std::string(64u << 10, 'o'));
  EXPECT_LT(pair.a.state.StdioRoom(), 0);
  while (true) {
    const std::string bytes = pair.a.state.TakeWrite(kBudget);
    if (bytes.empty()) break;
    ASSERT_TRUE(pair.b.Receive(bytes));
  }
  EXPECT_EQ(pair.b.got[Channel::kStdio].size(), 16u);
  pair.b.Done();
  pair.Settle();
  EXPECT_EQ(pair.b.got[Channel::kStdio].size(), 40u);
  EXPECT_EQ(pair.a.state.StdioRoom(), static_cast<std::int64_t>(limits::kStdioWindowBytes));
  EXPECT_TRUE(pair.a.state.Flushed());
}

TEST(LinkState, APeerThatOverrunsTheWindowIsRefused) {
  End b;
  b.state.OnConnect();
  std::string bytes;
  AppendFrame(FrameKind::kHello, 42, EncodeReceived({}), &bytes);
  ASSERT_TRUE(b.Receive(bytes));
  Result<> result;
  for (std::uint64_t i = 1; i <= 17 && result; ++i) {
    bytes.clear();
    AppendFrame(FrameKind::kStdio, i, std::string(64u << 10, 'o'), &bytes);
    result = b.Receive(bytes);
    EXPECT_EQ(result.has_value(), i <= 16) << i;
  }
  EXPECT_EQ(result.error().message, "more stdio than the window allows");
}

TEST(LinkState, BacklogIsBounded) {
  LinkState state(1);
  const std::string message(limits::kControlMessageBytes, 'c');
  EXPECT_TRUE(state.Send(Channel::kControl, message));
  EXPECT_TRUE(state.Send(Channel::kControl, message));
  EXPECT_TRUE(state.Send(Channel::kControl, message));
  EXPECT_FALSE(state.Send(Channel::kControl, message));
  EXPECT_FALSE(state.Send(Channel::kControl, std::string(limits::kControlMessageBytes + 1, 'c')));
  EXPECT_FALSE(state.Send(Channel::kStdio, std::string(PayloadLimit(FrameKind::kStdio) + 1, 'c')));
}

std::string RefusalOf(std::string_view bytes) {
  End end;
  end.Send(Channel::kControl, "one");
  end.state.OnConnect();
  const auto result = end.Receive(bytes);
  return result ? "accepted" : result.error().message;
}

TEST(LinkState, ProtocolViolationsAreNamed) {
  std::string hello;
  AppendFrame(FrameKind::kHello, 42, EncodeReceived({}), &hello);
  std::string bytes;
  AppendFrame(FrameKind::kHello, 43, EncodeReceived({}), &bytes);
  EXPECT_EQ(RefusalOf(bytes), "the peer is not the process that this link began with");
  EXPECT_EQ(RefusalOf(hello + hello), "a second hello on one connection");
  bytes.clear();
  AppendFrame(FrameKind::kControl, 1, "x", &bytes);
  EXPECT_EQ(RefusalOf(bytes), "the first frame is no hello");
  bytes = hello;
  AppendFrame(FrameKind::kControl, 2, "x", &bytes);
  EXPECT_EQ(RefusalOf(bytes), "control message 2 after 0");
  bytes.clear();
  AppendFrame(FrameKind::kHello, 42, EncodeReceived({.control = 1}), &bytes);
  EXPECT_EQ(RefusalOf(bytes), "the peer says it has control 1 stdio 0/0, of 0 and 0 sent");
  bytes = hello;
  AppendFrame(FrameKind::kBye, 0, "done", &bytes);
  EXPECT_EQ(RefusalOf(bytes + hello), "a frame after bye");
}

TEST(LinkState, CloseFlushesThenSaysWhy) {
  Pair pair;
  pair.a.Send(Channel::kControl, "last words");
  pair.a.state.Close("job ended");
  EXPECT_FALSE(pair.a.state.Send(Channel::kControl, "too late"));
  pair.Connect();
  pair.Settle();
  EXPECT_EQ(pair.b.got[Channel::kControl], std::vector<std::string>{"last words"});
  EXPECT_EQ(pair.b.state.bye(), "job ended");
  EXPECT_TRUE(pair.a.state.ClosedByUs());
  EXPECT_FALSE(pair.b.state.Send(Channel::kControl, "to whom"));
}

TEST(LinkState, PingsAreAnswered) {
  Pair pair;
  pair.Connect();
  pair.Settle();
  pair.a.state.Ping(9);
  pair.Settle();
  EXPECT_EQ(pair.a.state.last_pong(), 9u);
  EXPECT_EQ(pair.b.state.last_pong(), 0u);
}

RC_GTEST_PROP(LinkState, NothingIsLostOrDoubledAcrossCuts, ()) {
  Pair pair;
  const auto steps = *rc::gen::inRange(1, 400);
  int serial = 0;
  for (int step = 0; step < steps; ++step) {
    const bool left = *rc::gen::arbitrary<bool>();
    End& from = left ? pair.a : pair.b;
    End& to = left ? pair.b : pair.a;
    switch (*rc::gen::weightedElement<int>({{6, 0}, {4, 1}, {12, 2}, {2, 3}, {1, 4}})) {
      case 0:
        from.Send(Channel::kControl, std::to_string(++serial));
        break;
      case 1:
        from.Send(Channel::kStdio,
                  std::to_string(++serial) + std::string(*rc::gen::inRange(0, 60000), '.'));
        break;
      case 2:
        if (from.state.connected()) {
          RC_ASSERT(pair.Move(&from, &to, *rc::gen::inRange<std::size_t>(0, 100000)).has_value());
        }
        break;
      case 3:
        to.Done();
        break;
      case 4:
        if (from.state.connected()) {
          pair.Cut();
        } else {
          pair.Connect();
        }
        break;
    }
  }
  pair.Connect();
  pair.Settle();
  for (const Channel channel : {Channel::kControl, Channel::kStdio}) {
    RC_ASSERT(pair.b.got[channel] == pair.a.sent[channel]);
    RC_ASSERT(pair.a.got[channel] == pair.b.sent[channel]);
  }
  RC_ASSERT(pair.a.state.Flushed() && pair.b.state.Flushed());
  RC_ASSERT(pair.a.state.duplicates() + pair.b.state.duplicates() == 0u);
}

}  // namespace
}  // namespace xmpi::wire
