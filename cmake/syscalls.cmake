# SPDX-License-Identifier: Apache-2.0
# bailey_syscalls(program): collects the `#syscalls` comments from the sources of a program and of all
# modules that it uses, directly or not, into generated/<program, '-' as '_'>_syscalls.h:
#     static const int allowed[] = {
#     #define HOST_SYSCALL(name) SYS_##name,
#     #include "bailey_sentry_syscalls.h"
#     };
# It works at the end of configuring, when every module is known.

function(bailey_syscalls program)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL _bailey_collect_syscalls [[${program}]])")
endfunction()

# Targets of ours that `target` links, itself included, into the list `var` of the caller.
function(_bailey_module_closure target var)
    set(seen ${${var}})
    if(NOT target IN_LIST seen)
        list(APPEND seen ${target})
        foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
            get_target_property(uses ${target} ${property})
            foreach(use IN LISTS uses)
                if(TARGET ${use})
                    get_target_property(imported ${use} IMPORTED)
                    if(NOT imported)
                        _bailey_module_closure(${use} seen)
                    endif()
                endif()
            endforeach()
        endforeach()
    endif()
    set(${var} ${seen} PARENT_SCOPE)
endfunction()

function(_bailey_collect_syscalls program)
    set(targets "")
    _bailey_module_closure(${program} targets)
    set(sources "")
    foreach(target IN LISTS targets)
        get_target_property(files ${target} SOURCES)
        get_target_property(dir ${target} SOURCE_DIR)
        foreach(file IN LISTS files)
            if(file MATCHES "\\.(c|S)$")
                cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${dir})
                list(APPEND sources ${file})
            endif()
        endforeach()
    endforeach()
    list(REMOVE_DUPLICATES sources)
    string(REPLACE "-" "_" name ${program})
    set(header ${CMAKE_BINARY_DIR}/generated/${name}_syscalls.h)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated)
    set(script ${CMAKE_SOURCE_DIR}/cmake/collect_syscalls.cmake)
    string(REPLACE ";" "," joined "${sources}")
    add_custom_command(OUTPUT ${header}
        COMMAND ${CMAKE_COMMAND} -DPROGRAM=${program} -DSOURCES=${joined} -DOUTPUT=${header} -P ${script}
        DEPENDS ${sources} ${script} COMMENT "Host calls of ${program}" VERBATIM)
    add_custom_target(${name}_syscalls DEPENDS ${header})
    add_dependencies(${program} ${name}_syscalls)
endfunction()
