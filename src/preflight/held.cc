#include "preflight/held.h"

#include <algorithm>
#include <array>
#include <format>
#include <set>
#include <tuple>

namespace xmpi::preflight {
namespace {

using wire::Held;

struct Row {
  Held::Kind kind;
  const char* what;  // {}: its name
  const char* why;
  const char* remedy;
};

constexpr const char* kCloseIt = "the program must close it before XMPI_Quiesce";

constexpr std::array kRows = {
    Row{Held::TCP, "holds a {}", "a network connection stays behind, and CRIU cannot dump it",
        kCloseIt},
    Row{Held::UDP, "holds a {}", "CRIU cannot dump a network socket", kCloseIt},
    Row{Held::INHERITED, "holds MPI's {}, inherited from its parent",
        "MPI closes it in its own process only, and CRIU cannot dump it",
        "end the child before XMPI_Quiesce, or start it without the descriptors that it does not "
        "need (close_range, posix_spawn_file_actions_addclosefrom_np, close_fds)"},
    Row{Held::NAMED_PIPE, "holds the named pipe {}", "its other end stays on this node", kCloseIt},
    Row{Held::UNIX_SOCKET, "holds a {} whose other end is outside the rank",
        "its peer stays on this node", kCloseIt},
    Row{Held::OTHER_SOCKET, "holds a {}", "CRIU cannot dump such a socket", kCloseIt},
    Row{Held::IO_URING, "holds an io_uring", "its state is in the kernel and in no image",
        "the program must close it before XMPI_Quiesce, or do without io_uring"},
    Row{Held::KERNEL_OBJECT, "holds {}", "it is an object of this kernel that CRIU cannot save",
        kCloseIt},
    Row{Held::DEVICE, "holds the device {}", "its state is in this node's hardware or driver",
        kCloseIt},
    Row{Held::DEVICE_MAPPING, "holds a mapping of the device {}",
        "its memory belongs to this node's hardware or driver",
        "the program must unmap it before XMPI_Quiesce"},
    Row{Held::SYSV_SHM, "holds System V shared memory ({})",
        "its segment belongs to this node and not to the rank",
        "the program must detach it (shmdt) before XMPI_Quiesce, or use mmap or MPI windows"},
    Row{Held::TERMINAL, "holds the terminal {}", "its other end stays on this node",
        "start the program without a terminal of its own"},
    Row{Held::SHARED_MEMORY, "holds shared memory {}", "its memory belongs to this node",
        "the program must unmap it before XMPI_Quiesce"},
    Row{Held::TRACED, "is traced by {}", "CRIU must trace it itself", "detach the debugger"},
    Row{Held::STRAY, "process {} has left the rank's process tree",
        "it would be left behind on this node", "end it, or do not start it as a daemon"},
    Row{Held::NAMESPACE, "is in {}", "CRIU cannot dump nested namespaces",
        "run the program without containers inside its rank"},
};

std::string Filled(const char* pattern, const std::string& name) {
  std::string text = pattern;
  if (const std::size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, name);
  return text;
}

}  // namespace

void CheckHeld(const wire::RankFacts& rank, const std::string& node, wire::Findings* findings) {
  for (const Held& held : rank.holds()) {
    if (held.may_be_mpis()) continue;
    for (const Row& row : kRows) {
      if (row.kind != held.kind()) continue;
      wire::Finding& finding = *findings->add_findings();
      finding.set_severity(wire::Finding::REFUSE);
      finding.set_node(node);
      finding.add_ranks(rank.rank());
      finding.set_pid(held.pid());
      finding.set_fd(held.fd());
      finding.set_what(held.process().empty() ? Filled(row.what, held.name())
                                              : std::format("{} on {} {}", held.process(), node,
                                                            Filled(row.what, held.name())));
      finding.set_why(row.why);
      finding.set_remedy(row.remedy);
    }
  }
}

void KeepWhatLasts(const wire::SourceFacts& earlier, wire::SourceFacts* facts) {
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, int, std::string>;
  const auto key = [](const wire::RankFacts& rank, const Held& held) {
    return Key(rank.rank(), held.kind(), held.pid(), held.fd(), held.name());
  };
  std::set<Key> known;
  for (const wire::RankFacts& rank : earlier.ranks()) {
    for (const Held& held : rank.holds()) known.insert(key(rank, held));
  }
  for (wire::RankFacts& rank : *facts->mutable_ranks()) {
    const auto gone = std::ranges::remove_if(
        *rank.mutable_holds(), [&](const Held& held) { return !known.contains(key(rank, held)); });
    rank.mutable_holds()->erase(gone.begin(), gone.end());
  }
}

}  // namespace xmpi::preflight
