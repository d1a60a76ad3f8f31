/*
 * fork.h - sockets that must not live on in forked children: a child that keeps a copy open would hide its parent's
 * death from the peers. Close-on-exec covers exec; this covers fork without exec.
 */
#ifndef TERN_HOST_FORK_H
#define TERN_HOST_FORK_H

/*
 * Make a descriptor between begin and end, so that no fork falls between its birth and its registration:
 *   tern_fork_begin(); fd = accept4(...); fd = tern_fork_end(fd);
 * A negative fd is passed through with errno kept.
 */
void tern_fork_begin(void);
int tern_fork_end(int fd);
/* Close a registered descriptor; negative: nothing. */
void tern_fork_close(int fd);

#endif
