// Fills: the PageFills of a slot's ranks, and what the slot's init holds for them. Runs on the
// proxy's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/ids.h"
#include "criu/checkpointer.h"
#include "criu/page_fill.h"
#include "os/slot.h"

namespace xmpi::criu {

class Fills : public std::enable_shared_from_this<Fills> {
 public:
  Fills(os::Slot* slot, Post post) : slot_(slot), post_(std::move(post)) {}

  // Before the criu process that restores it. In the place of an earlier one of the same rank.
  Result<> Begin(const image::RankImage& image, std::shared_ptr<image::StoredPages> pages);
  // It was not restored.
  void Drop(RankId rank);
  bool Has(RankId rank) const { return fills_.contains(rank); }
  // See Checkpointer.
  void FillMemory(std::function<void(Result<>)> done);
  FillProgress progress() const;

 private:
  struct Entry {
    std::unique_ptr<PageFill> fill;
    std::uint32_t held = 0;  // by the slot's init
  };

  void OnFilled(RankId rank, Result<> filled);

  os::Slot* slot_;
  Post post_;
  std::map<RankId, Entry> fills_;
  FillProgress finished_;
  std::size_t awaited_ = 0;
  std::optional<Error> failed_;
  std::function<void(Result<>)> done_;
};

}  // namespace xmpi::criu
