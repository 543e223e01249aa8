! A kernel in Fortran that computes one test case of `mha conform --write`: attention CASE.safetensors
! RESULT.safetensors. It has causal masks, grouped heads, T_q != T_k, values of another width, and a backward; numbers
! are float32. The file's axes (B, T, h, d), the last the fastest, are (d, h, T, B) here.
program attention
    use, intrinsic :: iso_fortran_env, only: int64, real32
    implicit none
    integer(int64) :: bytes, used
    integer :: file, groups, b, i, head, shared, keys
    character(:), allocatable :: header, index_of
    character(1000) :: case_file, result_file
    real(real32), allocatable :: q(:, :, :, :), k(:, :, :, :), v(:, :, :, :), o(:, :, :, :), weight(:), d_score(:)
    real(real32), allocatable :: d_o(:, :, :, :), d_q(:, :, :, :), d_k(:, :, :, :), d_v(:, :, :, :)
    logical :: causal, backward

    call get_command_argument(1, case_file)
    call get_command_argument(2, result_file)
    open (newunit=file, file=trim(case_file), access="stream", form="unformatted", status="old")
    read (file) bytes
    allocate (character(bytes) :: header)
    read (file) header
    backward = index(header, '"d_output"') > 0
    call read_tensor("query", q)
    call read_tensor("key", k)
    call read_tensor("value", v)
    if (backward) call read_tensor("d_output", d_o)
    close (file)
    causal = index(header, '"causal":"1"') > 0
    groups = size(q, 2) / size(k, 2)
    allocate (o(size(v, 1), size(q, 2), size(q, 3), size(q, 4)))
    allocate (d_q, mold=q)
    allocate (d_k, source=0 * k)
    allocate (d_v, source=0 * v)
    do b = 1, size(q, 4)
        do i = 1, size(q, 3)
            keys = merge(min(i, size(k, 3)), size(k, 3), causal)
            do head = 1, size(q, 2)
                shared = (head - 1) / groups + 1
                associate (q => q(:, head, i, b), k => k(:, shared, :keys, b), v => v(:, shared, :keys, b), &
                           o => o(:, head, i, b))
                    weight = attended(q, k)
                    o = matmul(v, weight)
                    if (backward) call go_back(q, k, v, o, d_o(:, head, i, b))
                end associate
            end do
        end do
    end do
    call write_tensors()

contains

    ! softmax(q k / sqrt(d)) over the keys that a query sees.
    pure function attended(q, k) result(weight)
        real(real32), intent(in) :: q(:), k(:, :)
        real(real32) :: weight(size(k, 2))
        weight = matmul(q, k) / sqrt(real(size(q), real32))
        weight = exp(weight - maxval(weight))
        weight = weight / sum(weight)
    end function

    ! What the gradient of that row gives: dV += P^T dO, dS = P (dO V^T - D), D = dO O, dQ = dS K, dK += dS^T Q.
    subroutine go_back(q, k, v, o, in)
        real(real32), intent(in) :: q(:), k(:, :), v(:, :), o(:), in(:)
        integer :: j
        d_score = weight * (matmul(in, v) - dot_product(in, o)) / sqrt(real(size(q), real32))
        d_q(:, head, i, b) = matmul(k, d_score)
        do j = 1, keys
            d_k(:, shared, j, b) = d_k(:, shared, j, b) + d_score(j) * q
            d_v(:, shared, j, b) = d_v(:, shared, j, b) + weight(j) * in
        end do
    end subroutine

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

    ! Output and gradients, in the same format.
    subroutine write_tensors()
        used = 0
        index_of = "{"//entry("output", shape(o))
        if (backward) index_of = index_of//","//entry("d_query", shape(q))//","//entry("d_key", shape(k))//","// &
                                 entry("d_value", shape(v))
        index_of = index_of//"}"
        open (newunit=file, file=trim(result_file), access="stream", form="unformatted", status="replace")
        write (file) len(index_of, int64), index_of, o
        if (backward) write (file) d_q, d_k, d_v
        close (file)
    end subroutine

    ! What the header says of one tensor.
    function entry(name, of) result(text)
        character(*), intent(in) :: name
        integer, intent(in) :: of(4)
        character(:), allocatable :: text
        character(200) :: numbers
        write (numbers, "(3(i0, ','), i0, '],""data_offsets"":[', i0, ',', i0)") of(4:1:-1), used, &
            used + 4 * product(int(of, int64))
        used = used + 4 * product(int(of, int64))
        text = '"'//name//'":{"dtype":"F32","shape":['//trim(numbers)//"]}"
    end function
end program
