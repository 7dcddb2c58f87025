/* Root chunks of the interpreter's data stack.

   Python frames live on a chain of chunks that the thread state points to. Left to itself CPython gives each thread a
   16 KiB chunk, one page of which becomes resident: more than everything else a parked thread needs. A thread of ours
   therefore starts on a small root chunk of its own. CPython never frees a root chunk and spills into ordinary chunks
   when it is full, so nothing breaks when the guess was too small; it only costs a page.

   The right size depends on the function, so it is learned: when a thread is parked, what it uses at that moment is
   noted under its function's code object, and the next thread of that function gets as much. The notes are a fixed
   table of sizes keyed by address, without references: an address that was reused costs a wrong guess, nothing else.

   Chunks come from a free list per size class of 128 bytes. Where CPython itself keeps no spare chunk (3.13 and before,
   and early 3.14) a call that just crosses the edge of the root chunk would map and unmap memory every time, so an
   arena allocator is installed there that keeps a few blocks of that size and passes everything else through. */
#ifndef CORO_DATASTACK_H
#define CORO_DATASTACK_H

#include <Python.h>

struct _PyInterpreterFrame;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Install the caching arena allocator where it is needed; later calls do nothing. */
void coro_datastack_setup(void);

/* A root chunk for a thread that will run code known by `key` (any address, may be NULL). Sets the first free word and
   the end. NULL when memory ran out. */
_PyStackChunk *coro_datastack_root(const void *key, PyObject ***top, PyObject ***limit);

/* Note that a thread of that code was parked with its data stack at (chunk, top), its root chunk being `root`. */
void coro_datastack_note(const void *key, _PyStackChunk *root, _PyStackChunk *chunk, PyObject **top);

/* The frame at the bottom of a data stack, which was entered first and is left last; NULL when the stack is empty. */
static inline struct _PyInterpreterFrame *
coro_datastack_bottom(_PyStackChunk *root, _PyStackChunk *chunk, PyObject **top)
{
    PyObject **bottom = root == NULL ? NULL : &root->data[1];
    return bottom == NULL || (chunk == root && top == bottom) ? NULL : (struct _PyInterpreterFrame *)bottom;
}

/* Bytes of a data stack: the chunk in use and those below it. */
static inline size_t
coro_datastack_size(const void *chunk)
{
    const _PyStackChunk *c = chunk;
    size_t size = 0;
    for (; c != NULL; c = c->previous) {
        size += c->size;
    }
    return size;
}

/* Give back a dead thread's chunks: the chain from `chunk` to its root chunk `root`. */
void coro_datastack_release(_PyStackChunk *root, _PyStackChunk *chunk);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
