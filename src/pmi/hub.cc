#include "pmi/hub.h"

#include <algorithm>
#include <format>
#include <utility>

#include "base/check.h"
#include "pmi/limits.h"

namespace xmpi::pmi {
namespace {

std::string Name(const FenceId& id) {
  return std::format("fence {} of generation {}", id.n, id.generation);
}

bool WithinLimits(const Put& put) {
  return put.key.size() < kMaxKeyBytes && put.value.size() < kMaxValueBytes;
}

}  // namespace

Hub::Hub(SlotId slots) : waiting_(slots) { XMPI_CHECK(slots > 0); }

Result<std::optional<FenceOut>> Hub::OnFenceIn(SlotId slot, FenceIn fence) {
  XMPI_CHECK(slot < waiting_.size());
  std::optional<FenceIn>& mine = waiting_[slot];
  if (fence.id <= opened_ || (mine && mine->id == fence.id)) return std::nullopt;
  if (mine) {
    return Fail(ErrorCode::kProtocol, std::format("slot {} entered {} while it waits in {}", slot,
                                                  Name(fence.id), Name(mine->id)));
  }
  if (!std::ranges::all_of(fence.puts, WithinLimits)) {
    return Fail(
        ErrorCode::kProtocol,
        std::format("slot {} entered {} with a put beyond PMI's limits", slot, Name(fence.id)));
  }
  mine = std::move(fence);
  if (!std::ranges::all_of(waiting_, [](const auto& in) { return in.has_value(); })) {
    return std::nullopt;
  }
  const FenceId id = mine->id;
  if (!std::ranges::all_of(waiting_, [&](const auto& in) { return in->id == id; })) {
    return Fail(ErrorCode::kProtocol, Mismatch());
  }
  FenceOut out{id, {}};
  for (std::optional<FenceIn>& in : waiting_) {
    std::ranges::move(in->puts, std::back_inserter(out.puts));
    in.reset();
  }
  opened_ = id;
  return out;
}

Result<> Hub::DropSlot(SlotId slot, Generation generation) {
  XMPI_CHECK(slot < waiting_.size());
  if (FenceOpen(generation)) {
    return Fail(ErrorCode::kRefused, std::format("slot {} cannot be taken back: {} is open", slot,
                                                 Name({generation, 1})));
  }
  std::optional<FenceIn>& mine = waiting_[slot];
  if (mine && mine->id.generation == generation) mine.reset();
  return {};
}

bool Hub::FenceOpen(Generation generation) const { return opened_ >= FenceId{generation, 1}; }

std::vector<SlotId> Hub::Absent() const {
  std::vector<SlotId> absent;
  for (SlotId slot = 0; slot < waiting_.size(); ++slot) {
    if (!waiting_[slot]) absent.push_back(slot);
  }
  if (absent.size() == waiting_.size()) absent.clear();
  return absent;
}

std::string Hub::Mismatch() const {
  const auto ids = [](const auto& in) { return in->id; };
  const SlotId low = std::ranges::min_element(waiting_, {}, ids) - waiting_.begin();
  const SlotId high = std::ranges::max_element(waiting_, {}, ids) - waiting_.begin();
  return std::format("all slots wait, but not in one fence: slot {} in {}, slot {} in {}", low,
                     Name(waiting_[low]->id), high, Name(waiting_[high]->id));
}

Result<> Hub::Publish(std::string_view name, std::string_view port) {
  if (name.size() > kMaxServiceBytes || port.size() > kMaxPortBytes) {
    return Fail(ErrorCode::kRefused, "the service name or its port is too long");
  }
  if (names_.size() >= kMaxPublishedNames) {
    return Fail(ErrorCode::kRefused,
                std::format("{} service names are published already", names_.size()));
  }
  if (!names_.emplace(name, port).second) {
    return Fail(ErrorCode::kRefused, std::format("service {} is published already", name));
  }
  return {};
}

Result<> Hub::Unpublish(std::string_view name) {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    return Fail(ErrorCode::kRefused, std::format("service {} is not published", name));
  }
  names_.erase(found);
  return {};
}

Result<std::string> Hub::Lookup(std::string_view name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) {
    return Fail(ErrorCode::kRefused, std::format("service {} is not published", name));
  }
  return found->second;
}

}  // namespace xmpi::pmi
