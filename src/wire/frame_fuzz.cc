// Fuzz target: arbitrary bytes, fed in arbitrary pieces, through the frame decoder into a link.
// The first byte seeds the sizes of the pieces. Whatever comes, the answer is frames or an Error,
// and the link still says what it has.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "wire/frame.h"
#include "wire/link_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using xmpi::wire::FrameDecoder;
  using xmpi::wire::LinkState;
  if (size == 0) return 0;
  std::size_t piece = data[0] % 61 + 1;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameDecoder decoder;
  LinkState link(7);
  (void)link.Send(xmpi::wire::Channel::kControl, "one");
  link.OnConnect();
  while (!rest.empty()) {
    decoder.Feed(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
    piece = piece * 5 % 127 + 1;
    for (;;) {
      auto frame = decoder.Next();
      if (!frame) {
        XMPI_CHECK(!frame.error().message.empty() && !decoder.Next());
        return 0;
      }
      if (!*frame) break;
      XMPI_CHECK((*frame)->payload.size() <= xmpi::wire::PayloadLimit((*frame)->kind));
      auto delivery = link.OnFrame(std::move(**frame));
      if (!delivery) return 0;
      if (*delivery && (*delivery)->channel == xmpi::wire::Channel::kStdio) link.StdioDone(1);
      (void)link.TakeWrite(1 << 16);
    }
  }
  return 0;
}
