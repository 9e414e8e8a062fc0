//! Device memory: that it is not host memory, and what is noticed about its use.

use crate::support::*;

#[test]
fn host_code_that_follows_a_device_pointer_faults() {
    const DEVICE: i32 = 3;
    let _device = Device::set(DEVICE);
    let pointer = malloc(64);
    // SAFETY: the child only reads one address and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: none; that it faults is what is tested. The exit is for the case that it does not.
        unsafe { pointer.cast::<u8>().read_volatile() };
        // SAFETY: ends the child without running anything else of it.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status), "the read went through");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
}

#[test]
fn memory_is_aligned_poisoned_when_fresh_and_holds_what_is_written() {
    const DEVICE: i32 = 4;
    let _device = Device::set(DEVICE);
    for bytes in [1, 63, 4096, 300_000, 5_000_001] {
        let pointer = malloc(bytes);
        assert_eq!(pointer.addr() % 64, 0);
        assert!(
            read(pointer, bytes).iter().all(|byte| *byte == 0xFF),
            "{bytes} fresh bytes"
        );
        let data: Vec<u8> = (0..=250).cycle().take(bytes).collect();
        write(pointer, &data);
        assert_eq!(read(pointer, bytes), data);
        ok(aclrtFree(pointer));
        let again = malloc(bytes);
        assert!(
            read(again, bytes).iter().all(|byte| *byte == 0xFF),
            "{bytes} bytes again"
        );
    }
}

#[test]
fn a_part_that_is_written_leaves_the_rest_of_a_fresh_page_poisoned() {
    const DEVICE: i32 = 5;
    let _device = Device::set(DEVICE);
    let bytes = 1 << 20;
    let pointer = malloc(bytes);
    write(pointer.wrapping_byte_add(300_000), &[1; 1000]);
    let seen = read(pointer, bytes);
    let written = 300_000..301_000;
    for (at, byte) in seen.iter().enumerate() {
        let expected = if written.contains(&at) { 1 } else { 0xFF };
        assert_eq!(*byte, expected, "byte {at}");
    }
    ok(aclrtMemset(pointer, bytes, 0x1_02, bytes - 1));
    let seen = read(pointer, bytes);
    assert!(seen[..bytes - 1].iter().all(|byte| *byte == 2));
    assert_eq!(seen[bytes - 1], 0xFF);
}

#[test]
fn freed_memory_is_known_by_its_number() {
    const DEVICE: i32 = 6;
    let _device = Device::set(DEVICE);
    let (first, second) = (malloc(100), malloc(200));
    ok(aclrtFree(second));
    let words = ["the 200 bytes of aclrtMalloc number 2 were freed by aclrtFree number 1"];
    refused(aclrtFree(second), RT_PARAM, &words);
    let mut host = [0_u8; 8];
    let to = host.as_mut_ptr().cast();
    refused(
        aclrtMemcpy(to, 8, second.wrapping_byte_add(16), 8, D2H),
        RT_PARAM,
        &words,
    );
    refused(
        aclrtFree(first.wrapping_byte_add(8)),
        RT_PARAM,
        &["8 bytes into"],
    );
    ok(aclrtFree(first));
    refused(
        aclrtFree(std::ptr::null_mut()),
        INVALID_PARAM,
        &["devPtr is null"],
    );
}

#[test]
fn a_range_beyond_its_allocation_is_refused_to_the_byte() {
    const DEVICE: i32 = 7;
    let _device = Device::set(DEVICE);
    let pointer = malloc(1000);
    let mut host = vec![0_u8; 2000];
    let to = host.as_mut_ptr().cast();
    ok(aclrtMemcpy(to, 2000, pointer, 1000, D2H));
    refused(
        aclrtMemcpy(to, 2000, pointer, 1001, D2H),
        RT_PARAM,
        &["1 beyond its end", "1000 bytes"],
    );
    let end = pointer.wrapping_byte_add(1000);
    refused(
        aclrtMemcpy(to, 2000, end, 1, D2H),
        RT_PARAM,
        &["1 beyond its end"],
    );
    refused(
        aclrtMemset(pointer, 5000, 0, 1500),
        RT_PARAM,
        &["500 beyond its end"],
    );
    let far = pointer.wrapping_byte_add(1 << 30);
    refused(
        aclrtMemcpy(to, 2000, far, 1, D2H),
        RT_PARAM,
        &["no allocation of device 7"],
    );
}

#[test]
fn memory_runs_out_with_the_vendors_code_and_comes_back() {
    const DEVICE: i32 = 8;
    let _device = Device::set(DEVICE);
    let (mut free, mut total) = (0, 0);
    ok(aclrtGetMemInfo(1, &raw mut free, &raw mut total));
    assert_eq!((free, total), (64 << 30, 64 << 30));
    let most = malloc(60 << 30);
    ok(aclrtGetMemInfo(1, &raw mut free, &raw mut total));
    assert_eq!(free, (4 << 30) - 32);
    let mut more = std::ptr::null_mut();
    let words = ["aclrtMalloc", "device 8", "bytes are free"];
    refused(aclrtMalloc(&raw mut more, 5 << 30, 0), 207_001, &words);
    refused(
        aclrtMalloc(&raw mut more, usize::MAX, 0),
        207_001,
        &["bytes are free"],
    );
    assert!(more.is_null());
    ok(aclrtFree(most));
    // The whole memory again and again: addresses that rest after a free are no loss.
    for _ in 0..5 {
        let all = malloc((64 << 30) - 32);
        ok(aclrtFree(all));
    }
    refused(
        aclrtGetMemInfo(99, &raw mut free, &raw mut total),
        INVALID_PARAM,
        &["attribute 99"],
    );
}

#[test]
fn sizes_and_policies_that_cannot_be_are_refused() {
    const DEVICE: i32 = 9;
    let _device = Device::set(DEVICE);
    let mut pointer = std::ptr::null_mut();
    refused(
        aclrtMalloc(&raw mut pointer, 0, 0),
        INVALID_PARAM,
        &["size is 0"],
    );
    refused(
        aclrtMalloc(std::ptr::null_mut(), 8, 0),
        INVALID_PARAM,
        &["devPtr is null"],
    );
    refused(
        aclrtMalloc(&raw mut pointer, 8, 1 << 20),
        RT_PARAM,
        &["policy"],
    );
    refused(
        aclrtMallocHost(&raw mut pointer, 0),
        INVALID_PARAM,
        &["size is 0"],
    );
    let mut local = 0_u64;
    refused(
        aclrtFree((&raw mut local).cast()),
        RT_PARAM,
        &["ordinary host memory"],
    );
    ok(aclrtMallocHost(&raw mut pointer, 100));
    refused(aclrtFree(pointer), RT_PARAM, &["pinned host memory"]);
    let device = malloc(8);
    refused(aclrtFreeHost(device), RT_PARAM, &["aclrtMallocHost"]);
    ok(aclrtFreeHost(pointer));
    refused(aclrtFreeHost(pointer), RT_PARAM, &["aclrtMallocHost"]);
}
