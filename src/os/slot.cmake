# The slot: spawner and reaper in namespaces of their own.
add_library(xmpi_slot STATIC
  namespaces.cc slot.cc slot_child.cc slot_init.cc slot_protocol.cc)
target_link_libraries(xmpi_slot PUBLIC xmpi_base)

xmpi_test(slot_test SOURCES slot_test.cc LIBS xmpi_slot)
