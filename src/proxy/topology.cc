#include "proxy/topology.h"

#include <hwloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/log.h"

namespace xmpi::proxy {
namespace {

struct XmlBuffer {
  hwloc_topology_t topology;
  char* bytes = nullptr;
  int size = 0;
  ~XmlBuffer() {
    if (bytes != nullptr) hwloc_free_xmlbuffer(topology, bytes);
  }
};

Result<> WriteTopology(int file) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Fail("hwloc cannot start");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, &hwloc_topology_destroy);
  // MPICH looks for the network devices, too.
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) return Fail("hwloc cannot read this node's topology");
  XmlBuffer xml{.topology = raw};
  if (hwloc_topology_export_xmlbuffer(raw, &xml.bytes, &xml.size, 0) != 0)
    return Fail("hwloc cannot write this node's topology");
  // The size counts the final zero.
  if (pwrite(file, xml.bytes, static_cast<std::size_t>(xml.size - 1), 0) != xml.size - 1)
    return std::unexpected(ErrnoError("topology file"));
  return {};
}

}  // namespace

Result<Topology> Topology::Open() {
  Fd file(memfd_create("topology.xml", MFD_CLOEXEC));
  if (!file) return std::unexpected(ErrnoError("memfd for the topology"));
  return Topology(std::move(file));
}

void Topology::Fill() {
  if (std::exchange(filled_, true)) return;
  if (auto written = WriteTopology(file_.get()); !written)
    log::Error("topology.failed", {{"why", written.error().message}});
}

}  // namespace xmpi::proxy
