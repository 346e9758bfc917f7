#include "pmi/kvs.h"

namespace xmpi::pmi {

void Kvs::Put(std::string_view key, std::string_view value) {
  pending_.insert_or_assign(std::string(key), std::string(value));
}

std::vector<Put> Kvs::Pending() const {
  std::vector<pmi::Put> puts;
  puts.reserve(pending_.size());
  for (const auto& [key, value] : pending_) puts.push_back({key, value});
  return puts;
}

void Kvs::Publish(const std::vector<pmi::Put>& puts) {
  for (const auto& [key, value] : puts) published_.insert_or_assign(key, value);
  pending_.clear();
}

std::optional<std::string_view> Kvs::Get(std::string_view key) const {
  for (const Values* values : {&pending_, &published_}) {
    if (const auto found = values->find(key); found != values->end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace xmpi::pmi
