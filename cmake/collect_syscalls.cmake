# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=name -DSOURCES=a.c,b.c -DOUTPUT=file.h -P collect_syscalls.cmake
# Writes HOST_SYSCALL(name) once for each call that a comment of the sources declares:
#     #syscalls NAME[,NAME...]: reason
string(REPLACE "," ";" SOURCES "${SOURCES}")
set(names "")
foreach(source IN LISTS SOURCES)
    file(STRINGS ${source} lines REGEX "#syscalls")
    foreach(line IN LISTS lines)
        if(NOT line MATCHES "#syscalls +([a-z0-9_]+( *, *[a-z0-9_]+)*) *: *[^ ]")
            message(FATAL_ERROR "${source}: not of the form '#syscalls NAME[,NAME]: reason': ${line}")
        endif()
        string(REGEX MATCHALL "[a-z0-9_]+" found "${CMAKE_MATCH_1}")
        list(APPEND names ${found})
    endforeach()
endforeach()
list(SORT names)
list(REMOVE_DUPLICATES names)

set(text "/* Generated from the #syscalls comments of ${PROGRAM}'s sources. */\n")
foreach(name IN LISTS names)
    string(APPEND text "HOST_SYSCALL(${name})\n")
endforeach()
file(WRITE ${OUTPUT}.new "${text}")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
