/* All living threads by id: an open-addressed hash table of object pointers.

   A Python dictionary would cost an int object and an entry, about 100 bytes and 80 ns a thread; this is 16 to 64 bytes
   and a few nanoseconds. Ids are consecutive integers, so they are scattered by a multiplication: side by side they
   would form one endless cluster, and removing from it would take time in proportion to the number of threads. Each
   entry owns a reference. */
#ifndef CORO_REGISTRY_H
#define CORO_REGISTRY_H

#include <Python.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

typedef struct {
    uint64_t id;      /* 0: free */
    PyObject *thread;
} coro_registry_entry;

extern coro_registry_entry *coro_registry;
extern size_t coro_registry_room;  /* a power of two, or 0 */
extern size_t coro_registry_count;

/* Insert; takes over a reference. Returns -1 when memory ran out. */
int coro_registry_add(uint64_t id, PyObject *thread);

/* The thread of an id (borrowed) or NULL. */
PyObject *coro_registry_find(uint64_t id);

/* Take out and return the owned reference, or NULL. */
PyObject *coro_registry_remove(uint64_t id);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
