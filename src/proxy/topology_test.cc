#include "proxy/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <unistd.h>

#include <string>

namespace xmpi::proxy {
namespace {

TEST(Topology, IsEmptyUntilItIsFilledAndThenWhatHwlocReads) {
  auto topology = Topology::Open();
  ASSERT_TRUE(topology) << topology.error().message;
  const int fd = topology->file().get();
  EXPECT_EQ(lseek(fd, 0, SEEK_END), 0);
  topology->Fill();
  const off_t size = lseek(fd, 0, SEEK_END);
  topology->Fill();
  EXPECT_EQ(lseek(fd, 0, SEEK_END), size);
  hwloc_topology_t read = nullptr, here = nullptr;
  ASSERT_EQ(hwloc_topology_init(&read), 0);
  ASSERT_EQ(hwloc_topology_set_xml(read, ("/proc/self/fd/" + std::to_string(fd)).c_str()), 0);
  ASSERT_EQ(hwloc_topology_load(read), 0);
  ASSERT_EQ(hwloc_topology_init(&here), 0);
  ASSERT_EQ(hwloc_topology_load(here), 0);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(read, HWLOC_OBJ_PU),
            hwloc_get_nbobjs_by_type(here, HWLOC_OBJ_PU));
  hwloc_topology_destroy(read);
  hwloc_topology_destroy(here);
}

}  // namespace
}  // namespace xmpi::proxy
