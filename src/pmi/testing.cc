#include "pmi/testing.h"

#include "base/check.h"
#include "pmi/mapping.h"

namespace xmpi::pmi {

Job::Job(const JobFacts& facts) : hub_(facts.slots.size()) {
  std::size_t size = 0;
  for (const auto& ranks : facts.slots) size += ranks.size();
  slot_of_rank_.resize(size);
  for (SlotId slot = 0; slot < facts.slots.size(); ++slot) {
    for (const RankId rank : facts.slots[slot]) slot_of_rank_.at(rank) = slot;
  }
  const Result<std::string> mapping = BuildMapping(slot_of_rank_);
  XMPI_CHECK(mapping.has_value());
  for (const auto& ranks : facts.slots) {
    SlotFacts slot{.ranks = {},
                   .universe_size = facts.universe_size,
                   .mapping = *mapping,
                   .keys = facts.keys,
                   .kvs_prefix = "kvs_test"};
    for (const RankId rank : ranks) {
      slot.ranks.push_back({rank, rank < facts.appnums.size() ? facts.appnums[rank] : 0});
    }
    servers_.push_back(std::make_unique<Server>(std::move(slot)));
  }
}

void Job::Feed(RankId rank, std::string_view bytes) {
  Perform(slot_of_rank_.at(rank), ServerOf(rank).Feed(rank, bytes));
}

std::string Job::Take(RankId rank) {
  std::deque<std::string>& lines = said[rank];
  if (lines.empty()) return "";
  std::string line = lines.front();
  lines.pop_front();
  return line;
}

void Job::Perform(SlotId slot, const Actions& actions) {
  for (const Action& action : actions) {
    std::visit([&](const auto& a) { Do(slot, a); }, action);
  }
}

void Job::Do(SlotId, const Reply& reply) {
  XMPI_CHECK(reply.bytes.ends_with('\n'));
  const std::string line = reply.bytes.substr(0, reply.bytes.size() - 1);
  XMPI_CHECK(!line.contains('\n'));
  said[reply.rank].push_back(line);
}

void Job::Do(SlotId slot, const FenceIn& fence) {
  const Result<std::optional<FenceOut>> out = hub_.OnFenceIn(slot, fence);
  if (!out) return errors.push_back(out.error().message);
  if (!*out) return;
  opened.push_back((*out)->id);
  for (SlotId other = 0; other < servers_.size(); ++other) {
    Perform(other, servers_[other]->OnFenceOut(**out));
  }
}

void Job::Do(SlotId, const Aborted& aborted) { aborts.push_back(aborted); }

void Job::Do(SlotId, const Finalized& done) { finalized.push_back(done.rank); }

void Job::Do(SlotId slot, const Publish& publish) {
  const bool ok = hub_.Publish(publish.name, publish.port).has_value();
  Perform(slot, servers_[slot]->OnNameResult(publish.request, ok));
}

void Job::Do(SlotId slot, const Unpublish& unpublish) {
  const bool ok = hub_.Unpublish(unpublish.name).has_value();
  Perform(slot, servers_[slot]->OnNameResult(unpublish.request, ok));
}

void Job::Do(SlotId slot, const Lookup& lookup) {
  const Result<std::string> port = hub_.Lookup(lookup.name);
  Perform(slot, servers_[slot]->OnNameResult(lookup.request, port.has_value(), port.value_or("")));
}

void Job::Do(SlotId, const ProtocolError& error) { errors.push_back(error.text); }

}  // namespace xmpi::pmi
