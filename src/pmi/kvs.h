// The key-value space of one generation as one slot sees it: what fences published, and what the
// slot's own ranks have put since the last one. A Kvs owns its strings and knows neither ranks nor
// fence numbers; its Server decides when it lives, opens and dies.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xmpi::pmi {

struct Put {
  std::string key;
  std::string value;
  bool operator==(const Put&) const = default;
};

class Kvs {
 public:
  // A key that is put again takes the new value: a client repeats its keys after a re-init.
  void Put(std::string_view key, std::string_view value);

  // What this slot's ranks have put since the last fence, by key.
  std::vector<pmi::Put> Pending() const;

  // A fence opened with the puts of all slots, this one's among them: all slots apply the same
  // list in the same order, so they agree even on a key that two slots put.
  void Publish(const std::vector<pmi::Put>& puts);

  // A slot's own puts are visible at once, which PMI-1 allows and no client may rely on.
  std::optional<std::string_view> Get(std::string_view key) const;

 private:
  using Values = std::map<std::string, std::string, std::less<>>;
  Values published_;
  Values pending_;
};

}  // namespace xmpi::pmi
