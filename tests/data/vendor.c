/* An HCCL that does nothing, for programs that look how it is found. With -DOPERATORS it has operators, as libhccl.so of
   CANN 8.5; with -DCOMMUNICATORS communicators and groups, as libhcomm.so; without either all that CANN 8.1 has in one. */
#if !defined(OPERATORS) && !defined(COMMUNICATORS)
#define OLD
#endif

#if defined(COMMUNICATORS) || defined(OLD)
int HcclCommInitRootInfo(unsigned size, const void *info, unsigned rank, void **comm) {
    static char made;
    (void)size, (void)info, (void)rank;
    *comm = &made;
    return 0;
}
#endif

#ifdef COMMUNICATORS
int HcclGroupStart(void) { return 0; }
int HcclGroupEnd(void) { return 0; }
#endif

#if defined(OPERATORS) || defined(OLD)
int HcclBarrier(void *comm, void *stream) { return (void)comm, (void)stream, 0; }
#endif
