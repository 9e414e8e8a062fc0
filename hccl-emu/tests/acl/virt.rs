//! Addresses that are reserved first and get memory later.

use crate::support::*;

const GRANULE: usize = 2 << 20;

fn properties(device: u32) -> Physical {
    Physical {
        handle_type: 0,
        allocation_type: 0,
        attribute: 4,
        device,
        location_type: 1,
        reserved: 0,
    }
}

#[test]
fn reserved_addresses_hold_what_is_mapped_and_nothing_else() {
    const DEVICE: i32 = 14;
    let _device = Device::set(DEVICE);
    let properties = properties(14);
    let mut granule = 0;
    ok(aclrtMemGetAllocationGranularity(
        &raw const properties,
        0,
        &raw mut granule,
    ));
    assert_eq!(granule, GRANULE);
    let mut range = std::ptr::null_mut();
    ok(aclrtReserveMemAddress(
        &raw mut range,
        4 * GRANULE,
        0,
        std::ptr::null_mut(),
        1,
    ));
    assert_eq!(range.addr() % GRANULE, 0);
    refused(aclrtMemset(range, 8, 0, 8), RT_PARAM, &[]);
    let mut memory = [std::ptr::null_mut(); 2];
    for (place, handle) in memory.iter_mut().enumerate() {
        ok(aclrtMallocPhysical(
            handle,
            GRANULE,
            &raw const properties,
            0,
        ));
        let at = range.wrapping_byte_add(place * GRANULE);
        ok(aclrtMapMem(at, GRANULE, 0, *handle, 0));
    }
    // Across the border of two pieces.
    let across = range.wrapping_byte_add(GRANULE - 4);
    write(across, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(read(across, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    let end = range.wrapping_byte_add(2 * GRANULE - 4);
    refused(
        aclrtMemset(end, 8, 0, 8),
        RT_PARAM,
        &["nothing is mapped at offset 0x400000"],
    );
    refused(
        aclrtMapMem(range, GRANULE, 0, memory[0], 0),
        RT_PARAM,
        &["already mapped"],
    );
    refused(aclrtReleaseMemAddress(range), RT_PARAM, &["2 mappings"]);
    ok(aclrtUnmapMem(range));
    refused(aclrtUnmapMem(range), RT_PARAM, &["not the start"]);
    refused(aclrtMemset(range, 8, 0, 8), RT_PARAM, &[]);
    ok(aclrtUnmapMem(range.wrapping_byte_add(GRANULE)));
    ok(aclrtReleaseMemAddress(range));
    for handle in memory {
        ok(aclrtFreePhysical(handle));
        refused(aclrtFreePhysical(handle), 107_017, &["was freed"]);
    }
    let (mut free, mut total) = (0, 0);
    ok(aclrtGetMemInfo(1, &raw mut free, &raw mut total));
    assert_eq!(free, total, "physical memory came back");
}

#[test]
fn sizes_that_are_no_multiple_of_the_granule_are_refused() {
    const DEVICE: i32 = 15;
    let _device = Device::set(DEVICE);
    let properties = properties(15);
    let mut place = std::ptr::null_mut();
    let bad = GRANULE + 1;
    refused(
        aclrtReserveMemAddress(&raw mut place, bad, 0, std::ptr::null_mut(), 1),
        RT_PARAM,
        &["multiples"],
    );
    refused(
        aclrtMallocPhysical(&raw mut place, bad, &raw const properties, 0),
        RT_PARAM,
        &["multiples"],
    );
    refused(
        aclrtReserveMemAddress(&raw mut place, GRANULE, 64, std::ptr::null_mut(), 1),
        RT_PARAM,
        &["alignment"],
    );
    refused(
        aclrtReleaseMemAddress(malloc(8)),
        RT_PARAM,
        &["not the start"],
    );
}
