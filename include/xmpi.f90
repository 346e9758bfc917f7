! XMPI for Fortran: compile this file with your program (mpifort xmpi.f90 program.f90 -lxmpi) and `use xmpi`
! beside `use mpi`. The functions are those of xmpi.h, described in XMPI_Quiesce(3), and return its error
! codes. MPICH's Fortran handles are its C handles, so XMPI_COMM_WORLD is the library's own variable.
module xmpi
  use, intrinsic :: iso_c_binding, only: c_int, c_ptr, c_null_ptr
  implicit none

  ! The current world. It is made anew when the job moves: never keep a copy but by XMPI_Comm_bind.
  integer(c_int), bind(C, name='xmpi_comm_world') :: XMPI_COMM_WORLD

  interface
    ! Both arguments are c_null_ptr in Fortran.
    integer(c_int) function XMPI_Init(argc, argv) bind(C, name='XMPI_Init')
      import :: c_int, c_ptr
      type(c_ptr), value :: argc, argv
    end function

    integer(c_int) function XMPI_Init_thread(argc, argv, required, provided) bind(C, name='XMPI_Init_thread')
      import :: c_int, c_ptr
      type(c_ptr), value :: argc, argv
      integer(c_int), value :: required
      integer(c_int), intent(out) :: provided
    end function

    integer(c_int) function XMPI_Finalize() bind(C, name='XMPI_Finalize')
      import :: c_int
    end function

    integer(c_int) function XMPI_Abort(comm, errorcode) bind(C, name='XMPI_Abort')
      import :: c_int
      integer(c_int), value :: comm, errorcode
    end function

    ! The safe point. rebuilt becomes 1 when the MPI objects were made anew in this call, else 0.
    integer(c_int) function XMPI_Quiesce(rebuilt) bind(C, name='XMPI_Quiesce')
      import :: c_int
      integer(c_int), intent(out) :: rebuilt
    end function

    ! comm stays bound after the call: give a variable with the attributes target and save.
    integer(c_int) function XMPI_Comm_bind(comm) bind(C, name='XMPI_Comm_bind')
      import :: c_int
      integer(c_int), target :: comm
    end function

    integer(c_int) function XMPI_Comm_unbind(comm) bind(C, name='XMPI_Comm_unbind')
      import :: c_int
      integer(c_int), target :: comm
    end function
  end interface
end module xmpi
