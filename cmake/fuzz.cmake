# xmpi_fuzz(NAME SOURCES fuzz.cc a.cc ... LIBS x CORPUS folder [LINK -ly ...]): one fuzz target. SOURCES begin with the
# file that has LLVMFuzzerTestOneInput, then what it calls, for clang to instrument. It becomes
#   NAME_corpus_test  the corpus in every build, linked with LIBS
#   NAME_fuzz         15 seconds of libFuzzer, where clang is there
#   NAME_fuzz_long    2 minutes of it, under ./dev test --long
# What is found new goes to the build folder, never into the tree.
find_program(XMPI_CLANGXX clang++)

function(xmpi_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;LIBS;LINK" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/src/)
  list(GET ARG_SOURCES 0 target)
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS})

  xmpi_test(${name}_corpus_test SOURCES ${target} ${CMAKE_SOURCE_DIR}/tests/fuzz_corpus_test.cc LIBS ${ARG_LIBS})
  target_compile_definitions(${name}_corpus_test PRIVATE XMPI_CORPUS="${corpus}")
  if(NOT XMPI_CLANGXX)
    return()
  endif()

  set(fuzzer ${CMAKE_BINARY_DIR}/tests/${name}_fuzz)
  set(generated ${CMAKE_BINARY_DIR}/generated)
  set(sources ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/src/base/error.cc)
  if(ARG_LINK MATCHES protobuf)
    list(APPEND sources ${generated}/wire/control.pb.cc)
  endif()
  file(GLOB headers ${CMAKE_CURRENT_SOURCE_DIR}/*.h ${CMAKE_SOURCE_DIR}/src/base/*.h)
  set(compile ${CMAKE_CXX_COMPILER_LAUNCHER} ${XMPI_CLANGXX} -std=c++23 -g -O1 -Wall -Wextra -Werror
    -fsanitize=fuzzer,address -I ${CMAKE_SOURCE_DIR}/src -isystem ${generated})
  set(objects)
  foreach(source ${sources})
    cmake_path(GET source STEM stem)
    set(object ${fuzzer}_objects/${stem}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${compile} -c ${source} -o ${object}
      DEPENDS ${source} ${headers})
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${fuzzer}_objects)
  add_custom_command(OUTPUT ${fuzzer}
    COMMAND ${XMPI_CLANGXX} -fsanitize=fuzzer,address ${objects} ${ARG_LINK} -o ${fuzzer}
    DEPENDS ${objects}
    COMMENT "Linking the ${name} fuzz target")
  add_custom_target(${name}_fuzzer ALL DEPENDS ${fuzzer})
  foreach(run "${name}_fuzz:15:unit:120" "${name}_fuzz_long:120:unit\;long:300")
    string(REGEX MATCH "^(.*):(.*):(.*):(.*)$" run "${run}")
    set(found ${fuzzer}_corpus)
    file(MAKE_DIRECTORY ${found})
    add_test(NAME ${CMAKE_MATCH_1} COMMAND ${fuzzer} -max_total_time=${CMAKE_MATCH_2} -max_len=16384
      -rss_limit_mb=1024 -artifact_prefix=${found}/ ${found} ${corpus})
    set_tests_properties(${CMAKE_MATCH_1} PROPERTIES LABELS "${CMAKE_MATCH_3}" TIMEOUT ${CMAKE_MATCH_4})
  endforeach()
endfunction()
