# The slot: spawner and reaper in namespaces of their own. Included by whoever comes first.
if(NOT TARGET xmpi_slot)
  add_library(xmpi_slot STATIC
    ${CMAKE_CURRENT_LIST_DIR}/namespaces.cc
    ${CMAKE_CURRENT_LIST_DIR}/slot.cc
    ${CMAKE_CURRENT_LIST_DIR}/slot_child.cc
    ${CMAKE_CURRENT_LIST_DIR}/slot_init.cc
    ${CMAKE_CURRENT_LIST_DIR}/slot_protocol.cc)
  target_link_libraries(xmpi_slot PUBLIC xmpi_base)

  xmpi_test(slot_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/slot_test.cc LIBS xmpi_slot)
endif()
