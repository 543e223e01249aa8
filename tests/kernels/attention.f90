! A kernel in Fortran that answers one question of `mha conform --write`: attention QUESTION.safetensors ANSWER.npy.
! It has causal masks, grouped heads, other numbers of keys, values of another width; numbers are float32.
! The file's axes (B, T, h, d), the last the fastest, are (d, h, T, B) here.
program attention
    use, intrinsic :: iso_fortran_env, only: int64, real32
    implicit none
    integer(int64) :: bytes
    integer :: file, groups, b, i, head
    character(:), allocatable :: header
    character(1000) :: question, answer
    real(real32), allocatable :: q(:, :, :, :), k(:, :, :, :), v(:, :, :, :), o(:, :, :, :)
    logical :: causal

    call get_command_argument(1, question)
    call get_command_argument(2, answer)
    open (newunit=file, file=trim(question), access="stream", form="unformatted", status="old")
    read (file) bytes
    allocate (character(bytes) :: header)
    read (file) header
    call read_tensor("query", q)
    call read_tensor("key", k)
    call read_tensor("value", v)
    close (file)
    causal = index(header, '"causal":"1"') > 0
    groups = size(q, 2) / size(k, 2)
    allocate (o(size(v, 1), size(q, 2), size(q, 3), size(q, 4)))
    do concurrent(b=1:size(q, 4), i=1:size(q, 3), head=1:size(q, 2))
        o(:, head, i, b) = attend(q(:, head, i, b), k(:, (head - 1) / groups + 1, :, b), &
                                  v(:, (head - 1) / groups + 1, :, b), i)
    end do
    call write_npy()

contains

    ! softmax(q k / sqrt(d)) v over the keys that query number i sees.
    pure function attend(q, k, v, i) result(row)
        real(real32), intent(in) :: q(:), k(:, :), v(:, :)
        integer, intent(in) :: i
        real(real32) :: row(size(v, 1)), weight(size(k, 2))
        integer :: keys
        keys = merge(min(i, size(k, 2)), size(k, 2), causal)
        weight(:keys) = matmul(q, k(:, :keys)) / sqrt(real(size(q), real32))
        weight(:keys) = exp(weight(:keys) - maxval(weight(:keys)))
        row = matmul(v(:, :keys), weight(:keys)) / sum(weight(:keys))
    end function

    ! The tensor of a file: 8 bytes with the size of its header, the header in JSON, the numbers.
    subroutine read_tensor(name, x)
        character(*), intent(in) :: name
        real(real32), allocatable, intent(out) :: x(:, :, :, :)
        integer :: at, shape(4)
        integer(int64) :: from
        at = index(header, '"'//name//'":{"dtype":"F32"')
        if (at == 0) error stop "expected a tensor of float32"
        at = at + index(header(at:), '"shape":[') + 8
        read (header(at:at + index(header(at:), "]") - 2), *) shape
        at = at + index(header(at:), '"data_offsets":[') + 15
        read (header(at:at + index(header(at:), ",") - 2), *) from
        allocate (x(shape(4), shape(3), shape(2), shape(1)))
        read (file, pos=9 + bytes + from) x
    end subroutine

    ! NumPy's format: a magic number, the size of a header that fills 128 bytes, the numbers.
    subroutine write_npy()
        character(118) :: dict
        write (dict, "(a, i0, 3(', ', i0), a)") "{'descr': '<f4', 'fortran_order': False, 'shape': (", &
            size(o, 4), size(o, 3), size(o, 2), size(o, 1), "), }"
        dict(118:118) = new_line("a")
        open (newunit=file, file=trim(answer), access="stream", form="unformatted", status="replace")
        write (file) char(147)//"NUMPY"//char(1)//char(0)//char(118)//char(0)//dict, o
        close (file)
    end subroutine
end program
