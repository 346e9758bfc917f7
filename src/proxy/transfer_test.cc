// Both ends of an image connection against each other over the loopback interface, whole, cut and
// attacked. Needs the privilege to make memory-backed directories.
#include "proxy/transfer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio.hpp>
#include <atomic>
#include <format>
#include <optional>
#include <random>

#include "base/fault_points.h"
#include "image/source.h"
#include "os/namespaces.h"

namespace xmpi::proxy {
namespace {

constexpr RankId kRanks = 3;
constexpr std::size_t kFileBytes = 3'000'000;

std::string Pattern(RankId rank) {
  std::string bytes(kFileBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 2654435761u + rank * 97) >> 13);
  return bytes;
}

// The memory of one process, which may change between two looks at it.
class Memory : public image::PageSource {
 public:
  static constexpr std::uint64_t kBase = 0x7000'0000'0000;
  static constexpr std::size_t kPages = 1500;  // in three regions

  explicit Memory(RankId rank) : bytes_(kPages * image::kPageBytes) {
    std::mt19937 random(rank);  // nothing in it repeats or can be compressed
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  Result<std::size_t> Read(pid_t, std::uint64_t address, std::span<std::byte> out) override {
    const std::size_t at = address - kBase;
    const std::size_t size = std::min(out.size(), bytes_.size() - at);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), size, out.begin());
    return size;
  }
  void Change(std::size_t page) { bytes_[page * image::kPageBytes] ^= std::byte{1}; }
  std::vector<image::PageRun> runs() const { return {{kBase, kPages}}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

image::RankImage MakeImage(RankId rank) {
  image::RankImage image{*os::MakeMemoryDirectory(0), {}};
  image.manifest.rank = rank;
  image.manifest.pid = static_cast<pid_t>(10 + rank);
  image.manifest.used_pids = {image.manifest.pid};
  image.manifest.note = std::format("of rank {}", rank);
  const Fd file(openat(image.directory.get(), "pages-1.img", O_CREAT | O_WRONLY, 0600));
  const std::string bytes = Pattern(rank);
  EXPECT_EQ(write(file.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  image.manifest.files = *image::ListImageFiles(image.directory);
  return image;
}

std::string ReadBack(const image::RankImage& image) {
  const Fd file(openat(image.directory.get(), "pages-1.img", O_RDONLY));
  std::string bytes(kFileBytes + 1, '\0');
  std::size_t at = 0;
  for (ssize_t got; (got = read(file.get(), bytes.data() + at, bytes.size() - at)) > 0;)
    at += static_cast<std::size_t>(got);
  bytes.resize(at);
  return bytes;
}

// Stands between the two ends and cuts the first connections after so many bytes each.
class CuttingRelay {
 public:
  CuttingRelay(std::uint16_t target, std::vector<std::size_t> cuts)
      : target_(target), cuts_(std::move(cuts)) {
    listener_ = std::move(*os::Listen("127.0.0.1", {}));
    thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
  }
  std::uint16_t port() const { return listener_.port; }
  // From now on it passes nothing and closes nothing.
  void Hush() { hushed_ = true; }

 private:
  void Run(std::stop_token stop) {
    for (std::size_t number = 0; !stop.stop_requested(); ++number) {
      pollfd wait{listener_.socket.get(), POLLIN, 0};
      while (poll(&wait, 1, 20) == 0) {
        if (stop.stop_requested()) return;
      }
      Fd source(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Fd target(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(target_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(target.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
        return;
      const std::size_t budget = number < cuts_.size() ? cuts_[number] : SIZE_MAX;
      carriers_.emplace_back([this, source = std::move(source), target = std::move(target), budget,
                              stop] { Carry(source, target, budget, stop); });
    }
  }
  void Carry(const Fd& source, const Fd& target, std::size_t budget, std::stop_token stop) {
    char buffer[8192];
    while (!stop.stop_requested()) {
      if (hushed_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      pollfd waits[2] = {{source.get(), POLLIN, 0}, {target.get(), POLLIN, 0}};
      if (poll(waits, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (waits[i].revents == 0) continue;
        const ssize_t size = recv(waits[i].fd, buffer, sizeof(buffer), 0);
        if (size <= 0) return;
        if (i == 0 && static_cast<std::size_t>(size) > budget) return;
        if (i == 0) budget -= static_cast<std::size_t>(size);
        if (send(waits[1 - i].fd, buffer, static_cast<std::size_t>(size), MSG_NOSIGNAL) != size)
          return;
      }
    }
  }

  std::uint16_t target_;
  std::vector<std::size_t> cuts_;
  os::Listener listener_;
  std::atomic<bool> hushed_ = false;
  std::vector<std::jthread> carriers_;
  std::jthread thread_;
};

class TransferTest : public testing::Test {
 protected:
  TransferTest() : secret_(*os::Secret::Random()) {
    timeouts_.handshake = std::chrono::milliseconds(3000);
    timeouts_.image_progress = std::chrono::milliseconds(3000);
  }

  Post ToLoop() {
    return [this](std::function<void()> work) { asio::post(loop_, std::move(work)); };
  }
  void StartReceiver() {
    std::vector<RankId> ranks;
    for (RankId rank = 0; rank < kRanks; ++rank) ranks.push_back(rank);
    auto receiver =
        ImageReceiver::Start(secret_,
                             {.id = id_,
                              .address = "127.0.0.1",
                              .ports = {},
                              .ranks = ranks,
                              .limit_bytes = 1u << 30,
                              .timeouts = timeouts_},
                             ToLoop(), [this](Result<std::uint64_t> bytes) { received_ = bytes; });
    ASSERT_TRUE(receiver) << receiver.error().message;
    receiver_ = std::move(*receiver);
  }
  void StartSender(std::uint16_t port, const os::Secret& secret, TransferId id) {
    auto sender = ImageSender::Start(
        secret,
        {.id = std::move(id),
         .addresses = {"127.0.0.1"},
         .port = port,
         .timeouts = timeouts_,
         .lanes = 2,
         .scan = scan_,
         .precopy = {.longest = std::chrono::milliseconds(20'000)}},
        ToLoop(), [this](Result<wire::Plan> connected) { connected_ = std::move(connected); },
        [this](Result<std::uint64_t> bytes) { sent_ = bytes; });
    ASSERT_TRUE(sender) << sender.error().message;
    sender_ = std::move(*sender);
  }
  void RunUntil(const std::function<bool()>& finished) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!finished() && std::chrono::steady_clock::now() < deadline)
      loop_.run_one_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(finished());
  }
  void SendAll() {
    for (RankId rank = 0; rank < kRanks; ++rank) sender_->Add(MakeImage(rank));
    sender_->Finish();
  }
  void ExpectEverything() {
    ASSERT_TRUE(*received_) << received_->error().message;
    for (RankId rank = 0; rank < kRanks; ++rank) {
      auto image = receiver_->Image(rank);
      ASSERT_TRUE(image) << image.error().message;
      EXPECT_EQ(image->image.manifest.pid, static_cast<pid_t>(10 + rank));
      EXPECT_EQ(receiver_->NoteOf(rank), std::format("of rank {}", rank));
      EXPECT_TRUE(ReadBack(image->image) == Pattern(rank)) << "rank " << rank;
    }
  }
  // Each rank is one process with a memory.
  void GiveMemory() {
    for (RankId rank = 0; rank < kRanks; ++rank)
      memories_.push_back(std::make_shared<Memory>(rank));
  }
  Result<std::vector<PageJob>> Scan() {
    std::vector<PageJob> jobs;
    for (RankId rank = 0; rank < kRanks; ++rank)
      jobs.push_back({rank, 1, memories_[rank], memories_[rank]->runs()});
    return jobs;
  }
  void SendAllWithMemory() {
    for (RankId rank = 0; rank < kRanks; ++rank) {
      image::RankImage image = MakeImage(rank);
      image.manifest.memory = {{.pid = 1, .runs = memories_[rank]->runs(), .digest = {}}};
      image.pages = memories_[rank];
      sender_->Add(std::move(image));
    }
    sender_->Finish();
  }
  void ExpectTheMemory() {
    for (RankId rank = 0; rank < kRanks; ++rank) {
      const auto held = receiver_->Image(rank);
      ASSERT_TRUE(held) << held.error().message;
      std::vector<std::byte> bytes(Memory::kPages * image::kPageBytes);
      const Result<std::size_t> read = held->pages->Read(1, Memory::kBase, bytes);
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_EQ(*read, bytes.size());
      EXPECT_TRUE(bytes == memories_[rank]->bytes()) << "rank " << rank;
    }
  }

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(loop_);
  os::Secret secret_;
  TransferId id_{"job", {1, 2, 3}};
  LinkTimeouts timeouts_;
  std::unique_ptr<ImageReceiver> receiver_;
  std::unique_ptr<ImageSender> sender_;
  std::vector<std::shared_ptr<Memory>> memories_;
  std::function<Result<std::vector<PageJob>>()> scan_;
  std::optional<Result<wire::Plan>> connected_;
  std::optional<Result<std::uint64_t>> sent_, received_;
};

TEST_F(TransferTest, ImagesArriveWholeHoweverLateTheyAreMade) {
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  ASSERT_TRUE(*connected_) << connected_->error().message;
  sender_->Add(MakeImage(0));
  sender_->Add(MakeImage(1));
  loop_.run_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(received_);
  sender_->Add(MakeImage(2));
  sender_->Finish();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(*sent_) << sent_->error().message;
  EXPECT_GE(**sent_, kRanks * kFileBytes);
  ExpectEverything();
}

TEST_F(TransferTest, ACutConnectionGoesOnWhereItBroke) {
  StartReceiver();
  CuttingRelay relay(receiver_->port(), {2'000'000, 5'000'000});
  StartSender(relay.port(), secret_, id_);
  SendAll();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(*sent_) << sent_->error().message;
  ExpectEverything();
}

TEST_F(TransferTest, AConnectionThatKeepsBreakingIsGivenUpByBoth) {
  StartReceiver();
  CuttingRelay relay(receiver_->port(), std::vector<std::size_t>(100, 1'200'000));
  StartSender(relay.port(), secret_, id_);
  SendAll();
  RunUntil([&] { return sent_ && received_; });
  EXPECT_FALSE(*sent_);
  ASSERT_FALSE(*received_);
  EXPECT_TRUE(received_->error().message.contains("broke")) << received_->error().message;
}

TEST_F(TransferTest, DamageOnTheWayIsSentAgain) {
  ASSERT_TRUE(ArmFaults("transfer.before:corrupt"));
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  SendAll();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(ArmFaults(""));
  ASSERT_TRUE(*sent_) << sent_->error().message;
  ExpectEverything();
}

TEST_F(TransferTest, ASourceThatFallsSilentIsGivenUp) {
  timeouts_.image_progress = std::chrono::milliseconds(1500);
  StartReceiver();
  CuttingRelay relay(receiver_->port(), {});
  StartSender(relay.port(), secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  // A source that has nothing to send yet is not silent.
  loop_.run_for(std::chrono::milliseconds(2500));
  EXPECT_FALSE(received_);
  sender_->Add(MakeImage(0));
  relay.Hush();
  RunUntil([&] { return received_.has_value(); });
  EXPECT_FALSE(*received_);
}

TEST_F(TransferTest, ASourceThatIsKnownToBeLostIsNotWaitedFor) {
  timeouts_.image_progress = std::chrono::minutes(10);
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  sender_->Add(MakeImage(0));
  sender_.reset();
  receiver_->ExpectNobody();
  RunUntil([&] { return received_.has_value(); });
  ASSERT_FALSE(*received_);
  EXPECT_TRUE(received_->error().message.contains("the source is lost"))
      << received_->error().message;
}

TEST_F(TransferTest, WhatIsHeldCanBeSentOn) {
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  SendAll();
  RunUntil([&] { return sent_ && received_; });
  const std::unique_ptr<ImageReceiver> first = std::move(receiver_);
  sent_.reset();
  received_.reset();
  id_.candidate.attempt = 4;
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  for (RankId rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(first->NoteOf(rank), std::format("of rank {}", rank));
    sender_->Add(std::move(first->Image(rank)->image));
  }
  sender_->Finish();
  RunUntil([&] { return sent_ && received_; });
  ExpectEverything();
}

TEST_F(TransferTest, MemoryArrivesWithItsImages) {
  GiveMemory();
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  SendAllWithMemory();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(*sent_) << sent_->error().message;
  EXPECT_EQ(**sent_, **received_);  // as the source counts, and told
  ExpectEverything();
  ExpectTheMemory();
}

TEST_F(TransferTest, WhatWentAheadIsNotSentAgain) {
  GiveMemory();
  StartReceiver();
  scan_ = [this] { return Scan(); };
  StartSender(receiver_->port(), secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  ASSERT_TRUE(*connected_) << connected_->error().message;
  constexpr std::uint64_t kMemory = kRanks * Memory::kPages * image::kPageBytes;
  EXPECT_EQ((*connected_)->memory_bytes(), kMemory);
  EXPECT_GE((*connected_)->sent_bytes(), kMemory);
  EXPECT_EQ((*connected_)->dirty_bytes(), 0u);
  EXPECT_EQ((*connected_)->why_ended(), "converged");
  for (std::size_t page : {0u, 700u, 1499u}) memories_[1]->Change(page);
  SendAllWithMemory();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(*sent_) << sent_->error().message;
  EXPECT_LT(**sent_, kRanks * kFileBytes + kMemory / 10);
  ExpectEverything();
  ExpectTheMemory();
}

TEST_F(TransferTest, ALaneThatIsCutGoesOnAndLosesNothing) {
  GiveMemory();
  StartReceiver();
  CuttingRelay relay(receiver_->port(), {SIZE_MAX, 1'500'000, 900'000, 2'000'000});
  StartSender(relay.port(), secret_, id_);
  SendAllWithMemory();
  RunUntil([&] { return sent_ && received_; });
  ASSERT_TRUE(*sent_) << sent_->error().message;
  ExpectEverything();
  ExpectTheMemory();
}

TEST_F(TransferTest, MemoryThatIsHeldCanBeSentOn) {
  GiveMemory();
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  SendAllWithMemory();
  RunUntil([&] { return sent_ && received_; });
  const std::unique_ptr<ImageReceiver> first = std::move(receiver_);
  sent_.reset();
  received_.reset();
  id_.candidate.attempt = 4;
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  for (RankId rank = 0; rank < kRanks; ++rank) sender_->Add(std::move(first->Image(rank)->image));
  sender_->Finish();
  RunUntil([&] { return sent_ && received_; });
  ExpectEverything();
  ExpectTheMemory();
}

TEST_F(TransferTest, TheWrongSecretIsRefusedAndHarmsNobody) {
  StartReceiver();
  const os::Secret other = *os::Secret::Random();
  StartSender(receiver_->port(), other, id_);
  RunUntil([&] { return connected_.has_value(); });
  EXPECT_FALSE(*connected_);
  connected_.reset();
  StartSender(receiver_->port(), secret_, id_);
  SendAll();
  RunUntil([&] { return sent_ && received_; });
  ExpectEverything();
}

TEST_F(TransferTest, AnotherAttemptOfTheSameMoveIsAStranger) {
  StartReceiver();
  StartSender(receiver_->port(), secret_, {"job", {1, 2, 2}});
  RunUntil([&] { return connected_.has_value(); });
  EXPECT_FALSE(*connected_);
}

TEST_F(TransferTest, NobodyAtThePortIsAnErrorThatNamesIt) {
  const os::Listener taken = *os::Listen("127.0.0.1", {});
  const std::uint16_t port = taken.port;
  const_cast<os::Listener&>(taken).socket.Close();
  StartSender(port, secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  ASSERT_FALSE(*connected_);
  EXPECT_TRUE(connected_->error().message.contains(std::format("127.0.0.1 port {}", port)));
}

TEST_F(TransferTest, BothEndsEndAtOnceWhereverTheyAre) {
  StartReceiver();
  StartSender(receiver_->port(), secret_, id_);
  RunUntil([&] { return connected_.has_value(); });
  sender_->Add(MakeImage(0));
  const auto before = std::chrono::steady_clock::now();
  sender_.reset();
  receiver_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(2));
  EXPECT_FALSE(received_);
}

}  // namespace
}  // namespace xmpi::proxy
