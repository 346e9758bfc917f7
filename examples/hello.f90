! hello: the same in Fortran.
program hello
  use mpi
  implicit none
  integer :: rank, ranks, length, total, error
  character(len=MPI_MAX_PROCESSOR_NAME) :: name

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Get_processor_name(name, length, error)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  print '(a, i0, a, i0, a, a, a, i0)', 'hello from rank ', rank, ' of ', ranks, ' on ', &
    name(1:length), ', sum ', total
  call MPI_Finalize(error)
end program hello
