/*
 * mpi_bcast_uid.c - Tern beside MPI: rank 0 makes a unique id, MPI_Bcast hands it to all, and every rank becomes the PE
 * of the same number. Then both work in one program: a kernel passes numbers around the ring of PEs
 * (mpi_bcast_uid_ring.cu), and MPI adds up what arrived.
 *
 *   mpirun -n 4 mpi_bcast_uid
 */
#include <mpi.h>
#include <stdio.h>
#include <tern/tern.h>

/* One kernel: sends `value` to the next PE, and brings what the PE before this one sent. */
tern_status_t ring_pass(uint64_t *box, uint64_t value, uint64_t *got);

static int fail(const char *what)
{
    fprintf(stderr, "mpi_bcast_uid: %s: %s\n", what, tern_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int argc, char **argv)
{
    tern_init_attr_t attr = {.size = sizeof attr, .gpu = -1};
    tern_unique_id_t id;
    uint64_t got = 0, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &attr.pe);
    MPI_Comm_size(MPI_COMM_WORLD, &attr.n_pes);

    if (attr.pe == 0 && tern_get_unique_id(&id) != TERN_OK)
        return fail("tern_get_unique_id");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    attr.id = &id;
    if (tern_init_attr(&attr) != TERN_OK)
        return fail("tern_init_attr");

    uint64_t *box = tern_calloc(2, sizeof *box);
    if (!box || ring_pass(box, 1000u + (unsigned)tern_my_pe(), &got) != TERN_OK)
        return fail("ring");
    MPI_Allreduce(&got, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);

    uint64_t n = (uint64_t)tern_n_pes(), expected = n * 1000 + n * (n - 1) / 2;
    printf("PE %d of %d: got %llu, the sum of all is %llu\n", tern_my_pe(), tern_n_pes(), (unsigned long long)got,
           (unsigned long long)sum);
    if (tern_free(box) != TERN_OK || tern_finalize() != TERN_OK)
        return fail("end");
    MPI_Finalize();
    return sum != expected;
}
