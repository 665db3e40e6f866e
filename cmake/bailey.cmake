# SPDX-License-Identifier: Apache-2.0
# bailey_module(name SOURCES … USES …)   one static library for each module
# bailey_program(name SOURCES … USES …)  one executable for each role
# bailey_test(module_test USES …)        tests/unit/<module_test>.c under Criterion
include(CheckCCompilerFlag)
include(syscalls)

add_library(bailey_flags INTERFACE)
target_include_directories(bailey_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_definitions(bailey_flags INTERFACE _GNU_SOURCE)
target_compile_options(bailey_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wformat=2 -Wcast-qual -Wundef -Wno-gnu-zero-variadic-macro-arguments>)
if(BAILEY_WERROR)
    target_compile_options(bailey_flags INTERFACE -Werror)
endif()

# Hardening: probed, because gcc and clang differ in what they know.
set(hardening -fstack-protector-strong -fstack-clash-protection -fcf-protection)
check_c_compiler_flag(-ftrivial-auto-var-init=zero HAVE_AUTO_VAR_INIT)
check_c_compiler_flag("-ftrivial-auto-var-init=zero -enable-trivial-auto-var-init-zero-knowing-it-will-be-removed-from-clang"
    HAVE_AUTO_VAR_INIT_ENABLED)
if(HAVE_AUTO_VAR_INIT)
    list(APPEND hardening -ftrivial-auto-var-init=zero)
elseif(HAVE_AUTO_VAR_INIT_ENABLED)
    list(APPEND hardening -ftrivial-auto-var-init=zero
        -enable-trivial-auto-var-init-zero-knowing-it-will-be-removed-from-clang)
endif()
target_compile_options(bailey_flags INTERFACE ${hardening})
target_link_options(bailey_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)

if(BAILEY_SANITIZE)
    target_compile_options(bailey_flags INTERFACE -fsanitize=${BAILEY_SANITIZE}
        -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(bailey_flags INTERFACE -fsanitize=${BAILEY_SANITIZE})
    target_compile_definitions(bailey_flags INTERFACE BAILEY_SANITIZED=1)
    if(BAILEY_FUZZ) # coverage feedback from the modules, not from the target's file alone
        target_compile_options(bailey_flags INTERFACE -fsanitize=fuzzer-no-link)
    endif()
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(bailey_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()

function(bailey_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;USES")
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC bailey_flags ${arg_USES})
endfunction()

function(bailey_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;USES")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE bailey_flags ${arg_USES})
    target_link_options(${name} PRIVATE -pie)
endfunction()

function(bailey_test name)
    if(NOT BAILEY_TESTS)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES")
    add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c)
    target_link_libraries(${name} PRIVATE bailey_flags criterion ${arg_USES})
    # Criterion's macros; options of a source come last on the command line, a target's would lose.
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/unit/${name}.c PROPERTIES COMPILE_OPTIONS
        "-Wno-missing-prototypes;-Wno-conversion;-Wno-pedantic")
    add_test(NAME ${BAILEY_TEST_PREFIX}unit.${name} COMMAND ${name})
    set_tests_properties(${BAILEY_TEST_PREFIX}unit.${name} PROPERTIES LABELS unit
        FAIL_REGULAR_EXPRESSION "ERROR: [A-Za-z]*Sanitizer;runtime error:")
endfunction()

# tests/fuzz/<name>.c: a libFuzzer target in the fuzz preset; elsewhere the same file is linked with a
# driver that replays its seed corpus tests/fuzz/corpus/<name>/, so that every build runs the seeds.
function(bailey_fuzz name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES")
    if(NOT BAILEY_TESTS)
        return()
    endif()
    set(sources ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c)
    if(NOT BAILEY_FUZZ)
        list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.c)
    endif()
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE bailey_flags ${arg_USES})
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
    set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    if(BAILEY_FUZZ)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        add_test(NAME ${BAILEY_TEST_PREFIX}fuzz.${name} COMMAND ${name} -max_total_time=20 -print_final_stats=1 ${CMAKE_BINARY_DIR}/corpus-${name} ${corpus})
        file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/corpus-${name})
    else()
        add_test(NAME ${BAILEY_TEST_PREFIX}fuzz.${name} COMMAND ${name} ${corpus})
    endif()
    set_tests_properties(${BAILEY_TEST_PREFIX}fuzz.${name} PROPERTIES LABELS fuzz)
endfunction()
