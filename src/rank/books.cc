#include "rank/books.h"

namespace xmpi::rank {
namespace {

struct Wording {
  Thing thing;
  const char* what;
  const char* remedy;
};
constexpr Wording kWordings[] = {
    {Thing::kWindow, "open window", "free it before the safe point, or make it in XMPI_Register"},
    {Thing::kFile, "open MPI-IO file", "close it before the safe point"},
    {Thing::kType, "derived datatype",
     "free it before the safe point, or make it in XMPI_Register"},
    {Thing::kSession, "other MPI session", "finalize it before the safe point"},
};

}  // namespace

Books books;

void Books::Close() {
  on_ = false;
  Clear();
}

void Books::Clear() {
  const Lock lock(*this);
  for (Table& table : tables_) table.clear();
}

void Books::Made(Thing thing, std::uintptr_t handle, const char* maker, bool persistent) {
  const Lock lock(*this);
  Entry& entry = table(thing)[handle];
  entry.maker = maker;
  entry.persistent = persistent;
  entry.started = false;
  entry.registered = registering_;
  ++entry.count;
}

void Books::Gone(Thing thing, std::uintptr_t handle) {
  const Lock lock(*this);
  Table& entries = table(thing);
  const auto found = entries.find(handle);
  if (found != entries.end() && --found->second.count == 0) entries.erase(found);
}

void Books::Started(std::uintptr_t request) {
  const Lock lock(*this);
  const auto found = table(Thing::kRequest).find(request);
  if (found != table(Thing::kRequest).end()) found->second.started = true;
}

void Books::Completed(std::uintptr_t request) {
  const Lock lock(*this);
  Table& requests = table(Thing::kRequest);
  const auto found = requests.find(request);
  if (found == requests.end()) return;
  if (found->second.persistent) {
    found->second.started = false;
  } else if (--found->second.count == 0) {
    requests.erase(found);
  }
}

std::string Books::RequestObstacle() const {
  const Entry* pending = nullptr;
  const Entry* idle = nullptr;
  std::uint32_t pending_count = 0;
  for (const auto& [handle, entry] : table(Thing::kRequest)) {
    if (!entry.persistent || entry.started) {
      pending = &entry;
      pending_count += entry.count;
    } else if (!entry.registered) {
      idle = &entry;
    }
  }
  if (pending != nullptr)
    return "pending request of " + std::string(pending->maker) + " (" +
           std::to_string(pending_count) + " pending in all): complete it before the safe point";
  if (idle != nullptr)
    return "persistent request of " + std::string(idle->maker) +
           ": free it before the safe point, or make it in XMPI_Register";
  return {};
}

std::string Books::OtherObstacle() const {
  for (const Wording& wording : kWordings) {
    for (const auto& [handle, entry] : table(wording.thing)) {
      if (entry.registered) continue;
      return std::string(wording.what) + " of " + entry.maker + ": " + wording.remedy;
    }
  }
  return {};
}

std::string Books::CommObstacle(MPI_Comm comm, const Entry& entry) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return "communicator " + (length > 0 ? "\"" + std::string(name) + "\" " : std::string()) + "of " +
         entry.maker + ": bind it with XMPI_Comm_bind or free it before the safe point";
}

std::vector<MPI_Comm> Books::Comms() const {
  const Lock lock(*this);
  std::vector<MPI_Comm> comms;
  for (const auto& [handle, entry] : table(Thing::kComm)) {
    MPI_Comm comm;
    std::memcpy(&comm, &handle, sizeof comm);
    comms.push_back(comm);
  }
  return comms;
}

std::string Books::Leftovers() const {
  const Lock lock(*this);
  std::string makers;
  for (const Table& entries : tables_) {
    for (const auto& [handle, entry] : entries)
      makers += (makers.empty() ? "" : ", ") + std::string(entry.maker);
  }
  return makers;
}

std::size_t Books::Count(Thing thing) const {
  const Lock lock(*this);
  std::size_t count = 0;
  for (const auto& [handle, entry] : table(thing)) count += entry.count;
  return count;
}

}  // namespace xmpi::rank
