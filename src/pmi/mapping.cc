#include "pmi/mapping.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <optional>

#include "pmi/limits.h"

namespace xmpi::pmi {
namespace {

struct Run {
  SlotId slot;
  std::uint32_t ranks;
  bool operator==(const Run&) const = default;
};

struct Block {
  SlotId first_slot;
  std::uint32_t slots;
  std::uint32_t ranks_per_slot;
};

std::vector<Run> RunsOf(const std::vector<SlotId>& slot_of_rank) {
  std::vector<Run> runs;
  for (const SlotId slot : slot_of_rank) {
    if (runs.empty() || runs.back().slot != slot) runs.push_back({slot, 0});
    ++runs.back().ranks;
  }
  return runs;
}

// The reader starts over at the list's end, so round-robin placements need one round only; the
// last round may stop early.
std::size_t PeriodOf(const std::vector<Run>& runs) {
  for (std::size_t period = 1; period < runs.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < runs.size() && repeats; ++i) {
      const Run& first = runs[i % period];
      const bool last = i + 1 == runs.size();
      repeats = runs[i].slot == first.slot &&
                (runs[i].ranks == first.ranks || (last && runs[i].ranks < first.ranks));
    }
    if (repeats) return period;
  }
  return runs.size();
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  bool Skip(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::uint32_t> Number() {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::optional<Block> NextBlock() {
    if (!Skip(",")) return std::nullopt;
    const bool bare = !Skip("(");
    const auto first = Number();
    if (bare && first) return Block{*first, 1, 1};  // MPICH 4.2's short form of (first,1,1)
    if (!first || !Skip(",")) return std::nullopt;
    const auto slots = Number();
    if (!slots || !Skip(",")) return std::nullopt;
    const auto ranks = Number();
    if (!ranks || !Skip(")")) return std::nullopt;
    return Block{*first, *slots, *ranks};
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

void Place(const Block& block, std::uint32_t job_size, std::vector<SlotId>& slot_of_rank) {
  for (std::uint32_t i = 0; i < block.slots && slot_of_rank.size() < job_size; ++i) {
    const std::size_t left = job_size - slot_of_rank.size();
    const std::size_t ranks = std::min<std::size_t>(block.ranks_per_slot, left);
    slot_of_rank.insert(slot_of_rank.end(), ranks, block.first_slot + i);
  }
}

}  // namespace

Result<std::string> BuildMapping(const std::vector<SlotId>& slot_of_rank) {
  std::vector<Run> runs = RunsOf(slot_of_rank);
  runs.resize(PeriodOf(runs));
  std::vector<Block> blocks;
  for (const Run& run : runs) {
    if (!blocks.empty() && blocks.back().ranks_per_slot == run.ranks &&
        blocks.back().first_slot + blocks.back().slots == run.slot) {
      ++blocks.back().slots;
    } else {
      blocks.push_back({run.slot, 1, run.ranks});
    }
  }
  std::string mapping = "(vector";
  for (const Block& block : blocks) {
    mapping += std::format(",({},{},{})", block.first_slot, block.slots, block.ranks_per_slot);
  }
  mapping += ')';
  if (mapping.size() >= kMaxValueBytes) {
    return Fail(ErrorCode::kRefused,
                std::format("the placement of {} ranks needs a process mapping of {} bytes, PMI "
                            "allows {}; use equal numbers of ranks per slot",
                            slot_of_rank.size(), mapping.size(), kMaxValueBytes - 1));
  }
  return mapping;
}

Result<std::vector<SlotId>> ParseMapping(std::string_view mapping, std::uint32_t job_size) {
  const auto bad = [&] {
    return Fail(ErrorCode::kProtocol, std::format("not a process mapping: {}", mapping));
  };
  Reader reader(mapping);
  if (!reader.Skip("(vector")) return bad();
  std::vector<Block> blocks;
  while (!reader.Skip(")")) {
    const std::optional<Block> block = reader.NextBlock();
    if (!block || block->slots == 0 || block->ranks_per_slot == 0) return bad();
    blocks.push_back(*block);
  }
  if (blocks.empty() || !reader.AtEnd()) return bad();
  std::vector<SlotId> slot_of_rank;
  while (slot_of_rank.size() < job_size) {
    for (const Block& block : blocks) Place(block, job_size, slot_of_rank);
  }
  return slot_of_rank;
}

}  // namespace xmpi::pmi
