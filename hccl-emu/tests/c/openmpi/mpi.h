/* The few names of Open MPI 4 and 5 that the sweep uses, for machines that have its library and not
 * its headers: handles there are addresses of objects of the library. */
#ifndef MINIMAL_MPI_H
#define MINIMAL_MPI_H

typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;

extern char ompi_mpi_comm_world, ompi_mpi_char;
#define MPI_COMM_WORLD ((MPI_Comm)(void *)&ompi_mpi_comm_world)
#define MPI_CHAR ((MPI_Datatype)(void *)&ompi_mpi_char)

int MPI_Init(int *argc, char ***argv);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Barrier(MPI_Comm comm);
int MPI_Finalize(void);

#endif
