/* Stacks and frames that other libraries keep account of for each OS thread, so that a switch of ours would tear them.

   greenlet       knows which of its greenlets runs in the OS thread, and copies their stacks. A greenlet that is left
                  by a switch of ours is still the one that runs for whoever uses greenlets next, who is on another
                  stack. So no switch while another greenlet runs than the one in which the loop was started.
   pybind11       links its calls in a list of the OS thread (loader_life_support), and ends the process if they do not
                  return in the opposite order. So no switch while such a call is on the thread's C stack.

   Neither offers a public way to exchange what it keeps. Whether greenlet is in the way, its C interface tells. The
   calls of pybind11 all go through one function in each shared library, the dispatcher, whose address the methods of
   its modules have. Its return address is searched for among the words of the C stack; the rare word that looks like it
   is confirmed by unwinding the stack, because words are left behind by calls that have long returned.

   Cost: nothing before one of the two has been imported, because the test goes with that for the cyclic collector.
   Afterwards, for each wait, a call of greenlet's, or a comparison for each word of the thread's C stack, which is one
   or two hundred; with a call of pybind11's on the stack, a few microseconds.

   Rejected:
     any C frame that is not Python's   Whole programs run below frames of wrapt, mypyc, Nuitka or pydantic, which bear
                                        a switch; their threads would never give way.
     unwinding at each wait             costs more than the switch
     counting in a wrapper around each function of such a module   misses what is made later, and is in every traceback
     the frames of greenlet's stacks in the thread state   works with those versions that somebody has looked at */
#ifndef CORO_OBSTACLE_H
#define CORO_OBSTACLE_H

#include <Python.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

enum { CORO_NO_OBSTACLE = 0, CORO_GREENLET = 1, CORO_PYBIND11 = 2 };

/* From now on look at greenlets; `api` is the table in greenlet's capsule. */
void coro_obstacle_greenlet(void **api);

/* A loop begins in the calling OS thread: the greenlet that runs now is the one that its threads run in. */
void coro_obstacle_loop(void);

/* A function of a module: note its dispatcher if it is one of pybind11's. `module` is the name to report. Returns 1 if
   it is a new one, 0 if not, -1 with an exception set. */
int coro_obstacle_pybind11(PyObject *function, PyObject *module);

/* Is something in the way of a switch of the running thread, whose stack ends at `top`? For CORO_PYBIND11, `module`
   becomes the name of the module, borrowed. */
int coro_obstacle_now(const char *top, PyObject **module);

/* Has greenlet been imported? Async-signal-safe. */
int coro_obstacle_has_greenlet(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
