#include "preflight/closing_sockets.h"

#include <charconv>
#include <sstream>

namespace xmpi::preflight {
namespace {

// What listens on every address of its node is known by the port alone.
bool Listens(const std::set<std::string>& listening, const std::string& address) {
  if (address.empty()) return false;
  const std::string port = address.substr(address.rfind(':'));
  return listening.contains(address) || listening.contains("0.0.0.0" + port) ||
         listening.contains("[::]" + port);
}

template <class T>
bool Parse(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void ClosingSockets::Add(RankId rank, const std::string& text) {
  std::istringstream words(text);
  std::string word;
  List list;
  if (!(words >> word) || !Parse(word, &list.process)) return;
  while (words >> word) {
    const std::size_t at = word.find('@');
    std::uint64_t inode = 0;
    if (!Parse(std::string_view(word).substr(0, at), &inode)) continue;
    list.inodes.insert(inode);
    if (at != std::string::npos && word.find(':', at) != std::string::npos) {
      list.listening.insert(word.substr(at + 1));
      listening_.insert(word.substr(at + 1));
    }
  }
  lists_[rank] = std::move(list);
}

std::uint32_t ClosingSockets::ProcessOf(RankId rank) const {
  const auto found = lists_.find(rank);
  return found == lists_.end() ? 0 : found->second.process;
}

bool ClosingSockets::Has(RankId rank, std::uint64_t inode, const SocketFacts& socket) const {
  const auto found = lists_.find(rank);
  if (found == lists_.end()) return false;
  const List& list = found->second;
  if (list.inodes.contains(inode)) return true;
  if (socket.kind != wire::Held::TCP || socket.remote.empty()) return false;
  return Listens(list.listening, socket.local) || Listens(listening_, socket.remote);
}

}  // namespace xmpi::preflight
