//! The functions of the Ascend runtime that a client of HCCL needs, with their signatures.

use std::ffi::{c_char, c_void};

use super::table::{Family, symbol_table};
use crate::types::{
    AclCANNPackageName, AclCANNPackageVersion, AclDataType, AclError, AclrtCallback,
    AclrtCallbackBlockType, AclrtContext, AclrtDevAttr, AclrtDeviceStatus, AclrtDrvMemHandle,
    AclrtEvent, AclrtEventRecordedStatus, AclrtEventStatus, AclrtEventWaitStatus,
    AclrtExceptionInfo, AclrtExceptionInfoCallback, AclrtFloatOverflowMode, AclrtHostFunc,
    AclrtHostRegisterType, AclrtLastErrLevel, AclrtMallocConfig, AclrtMemAttr,
    AclrtMemGranularityOptions, AclrtMemMallocPolicy, AclrtMemcpyKind, AclrtNotify,
    AclrtPhysicalMemProp, AclrtPtrAttributes, AclrtReduceKind, AclrtRunMode, AclrtStream,
    AclrtStreamStatus, AclrtUuid,
};

symbol_table! {
    /// The functions of the runtime that were found in the loaded libraries.
    Acl, Family::Acl;

    // Beginning, end, versions.
    aclInit(configPath: *const c_char) -> AclError, ALL;
    aclFinalize() -> AclError, ALL;
    aclFinalizeReference(refCount: *mut u64) -> AclError, SINCE_8_5;
    aclrtGetVersion(
        majorVersion: *mut i32,
        minorVersion: *mut i32,
        patchVersion: *mut i32,
    ) -> AclError, ALL;
    aclsysGetCANNVersion(
        name: AclCANNPackageName,
        version: *mut AclCANNPackageVersion,
    ) -> AclError, ALL;
    aclsysGetVersionStr(pkgName: *mut c_char, versionStr: *mut c_char) -> AclError, SINCE_8_5;
    aclsysGetVersionNum(pkgName: *mut c_char, versionNum: *mut i32) -> AclError, SINCE_8_5;
    aclDataTypeSize(dataType: AclDataType) -> usize, ALL;
    aclrtGetRunMode(runMode: *mut AclrtRunMode) -> AclError, ALL;
    // Errors.
    aclGetRecentErrMsg() -> *const c_char, ALL;
    aclrtPeekAtLastError(level: AclrtLastErrLevel) -> AclError, ALL;
    aclrtGetLastError(level: AclrtLastErrLevel) -> AclError, ALL;
    aclrtSetExceptionInfoCallback(callback: AclrtExceptionInfoCallback) -> AclError, ALL;
    aclrtGetTaskIdFromExceptionInfo(info: *const AclrtExceptionInfo) -> u32, ALL;
    aclrtGetStreamIdFromExceptionInfo(info: *const AclrtExceptionInfo) -> u32, ALL;
    aclrtGetThreadIdFromExceptionInfo(info: *const AclrtExceptionInfo) -> u32, ALL;
    aclrtGetDeviceIdFromExceptionInfo(info: *const AclrtExceptionInfo) -> u32, ALL;
    aclrtGetErrorCodeFromExceptionInfo(info: *const AclrtExceptionInfo) -> u32, ALL;
    // Devices.
    aclrtGetDeviceCount(count: *mut u32) -> AclError, ALL;
    aclrtSetDevice(deviceId: i32) -> AclError, ALL;
    aclrtResetDevice(deviceId: i32) -> AclError, ALL;
    aclrtResetDeviceForce(deviceId: i32) -> AclError, ALL;
    aclrtGetDevice(deviceId: *mut i32) -> AclError, ALL;
    aclrtGetSocName() -> *const c_char, ALL;
    aclrtGetMemInfo(attr: AclrtMemAttr, free: *mut usize, total: *mut usize) -> AclError, ALL;
    aclrtQueryDeviceStatus(deviceId: i32, deviceStatus: *mut AclrtDeviceStatus) -> AclError, ALL;
    aclrtGetDeviceInfo(deviceId: u32, attr: AclrtDevAttr, value: *mut i64) -> AclError, SINCE_8_5;
    aclrtDeviceGetUuid(deviceId: i32, uuid: *mut AclrtUuid) -> AclError, SINCE_8_5;
    aclrtGetPhyDevIdByLogicDevId(logicDevId: i32, phyDevId: *mut i32) -> AclError, SINCE_8_5;
    aclrtGetLogicDevIdByPhyDevId(phyDevId: i32, logicDevId: *mut i32) -> AclError, SINCE_8_5;
    aclrtGetUserDevIdByLogicDevId(logicDevId: i32, userDevid: *mut i32) -> AclError, SINCE_8_5;
    aclrtGetLogicDevIdByUserDevId(userDevid: i32, logicDevId: *mut i32) -> AclError, SINCE_8_5;
    aclrtGetPhyDevIdByUserDevId(userDevId: i32, phyDevId: *mut i32) -> AclError, HEAD;
    aclrtGetUserDevIdByPhyDevId(phyDevId: i32, userDevId: *mut i32) -> AclError, HEAD;
    aclrtDeviceCanAccessPeer(
        canAccessPeer: *mut i32,
        deviceId: i32,
        peerDeviceId: i32,
    ) -> AclError, ALL;
    aclrtDeviceEnablePeerAccess(peerDeviceId: i32, flags: u32) -> AclError, ALL;
    aclrtDeviceDisablePeerAccess(peerDeviceId: i32) -> AclError, ALL;
    aclrtDevicePeerAccessStatus(
        deviceId: i32,
        peerDeviceId: i32,
        status: *mut i32,
    ) -> AclError, SINCE_8_5;
    aclrtSetDeviceSatMode(mode: AclrtFloatOverflowMode) -> AclError, ALL;
    aclrtGetDeviceSatMode(mode: *mut AclrtFloatOverflowMode) -> AclError, ALL;
    aclrtSynchronizeDevice() -> AclError, ALL;
    aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> AclError, ALL;
    aclrtDeviceTaskAbort(deviceId: i32, timeout: u32) -> AclError, ALL;
    aclrtDeviceGetBareTgid(pid: *mut i32) -> AclError, ALL;
    // Contexts.
    aclrtCreateContext(context: *mut AclrtContext, deviceId: i32) -> AclError, ALL;
    aclrtDestroyContext(context: AclrtContext) -> AclError, ALL;
    aclrtSetCurrentContext(context: AclrtContext) -> AclError, ALL;
    aclrtGetCurrentContext(context: *mut AclrtContext) -> AclError, ALL;
    aclrtGetPrimaryCtxState(
        deviceId: i32,
        flags: *mut u32,
        active: *mut i32,
    ) -> AclError, SINCE_8_5;
    aclrtCtxGetCurrentDefaultStream(stream: *mut AclrtStream) -> AclError, SINCE_8_5;
    // Memory.
    aclrtMalloc(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: AclrtMemMallocPolicy,
    ) -> AclError, ALL;
    aclrtMallocAlign32(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: AclrtMemMallocPolicy,
    ) -> AclError, ALL;
    aclrtMallocCached(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: AclrtMemMallocPolicy,
    ) -> AclError, ALL;
    aclrtMallocWithCfg(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: AclrtMemMallocPolicy,
        cfg: *mut AclrtMallocConfig,
    ) -> AclError, ALL;
    aclrtFree(devPtr: *mut c_void) -> AclError, ALL;
    aclrtFreeWithDevSync(devPtr: *mut c_void) -> AclError, SINCE_8_5;
    aclrtMallocHost(hostPtr: *mut *mut c_void, size: usize) -> AclError, ALL;
    aclrtMallocHostWithCfg(
        ptr: *mut *mut c_void,
        size: u64,
        cfg: *mut AclrtMallocConfig,
    ) -> AclError, ALL;
    aclrtFreeHost(hostPtr: *mut c_void) -> AclError, ALL;
    aclrtFreeHostWithDevSync(hostPtr: *mut c_void) -> AclError, SINCE_8_5;
    aclrtMemcpy(
        dst: *mut c_void,
        destMax: usize,
        src: *const c_void,
        count: usize,
        kind: AclrtMemcpyKind,
    ) -> AclError, ALL;
    aclrtMemcpyAsync(
        dst: *mut c_void,
        destMax: usize,
        src: *const c_void,
        count: usize,
        kind: AclrtMemcpyKind,
        stream: AclrtStream,
    ) -> AclError, ALL;
    aclrtMemcpy2d(
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: AclrtMemcpyKind,
    ) -> AclError, ALL;
    aclrtMemcpy2dAsync(
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: AclrtMemcpyKind,
        stream: AclrtStream,
    ) -> AclError, ALL;
    aclrtMemset(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize) -> AclError, ALL;
    aclrtMemsetAsync(
        devPtr: *mut c_void,
        maxCount: usize,
        value: i32,
        count: usize,
        stream: AclrtStream,
    ) -> AclError, ALL;
    aclrtReduceAsync(
        dst: *mut c_void,
        src: *const c_void,
        count: u64,
        kind: AclrtReduceKind,
        type: AclDataType,
        stream: AclrtStream,
        reserve: *mut c_void,
    ) -> AclError, SINCE_8_5;
    aclrtPointerGetAttributes(
        ptr: *const c_void,
        attributes: *mut AclrtPtrAttributes,
    ) -> AclError, ALL;
    aclrtHostRegister(
        ptr: *mut c_void,
        size: u64,
        type: AclrtHostRegisterType,
        devPtr: *mut *mut c_void,
    ) -> AclError, ALL;
    aclrtHostUnregister(ptr: *mut c_void) -> AclError, ALL;
    aclrtMemGetAddressRange(
        ptr: *mut c_void,
        pbase: *mut *mut c_void,
        psize: *mut usize,
    ) -> AclError, SINCE_9_0;
    // Memory: virtual addresses and physical pages.
    aclrtReserveMemAddress(
        virPtr: *mut *mut c_void,
        size: usize,
        alignment: usize,
        expectPtr: *mut c_void,
        flags: u64,
    ) -> AclError, ALL;
    aclrtReleaseMemAddress(virPtr: *mut c_void) -> AclError, ALL;
    aclrtMallocPhysical(
        handle: *mut AclrtDrvMemHandle,
        size: usize,
        prop: *const AclrtPhysicalMemProp,
        flags: u64,
    ) -> AclError, ALL;
    aclrtFreePhysical(handle: AclrtDrvMemHandle) -> AclError, ALL;
    aclrtMapMem(
        virPtr: *mut c_void,
        size: usize,
        offset: usize,
        handle: AclrtDrvMemHandle,
        flags: u64,
    ) -> AclError, ALL;
    aclrtUnmapMem(virPtr: *mut c_void) -> AclError, ALL;
    aclrtMemGetAllocationGranularity(
        prop: *mut AclrtPhysicalMemProp,
        option: AclrtMemGranularityOptions,
        granularity: *mut usize,
    ) -> AclError, ALL;
    // Memory of other processes.
    aclrtIpcMemGetExportKey(
        devPtr: *mut c_void,
        size: usize,
        key: *mut c_char,
        len: usize,
        flags: u64,
    ) -> AclError, SINCE_8_5;
    aclrtIpcMemSetImportPid(key: *const c_char, pid: *mut i32, num: usize) -> AclError, SINCE_8_5;
    aclrtIpcMemImportByKey(
        devPtr: *mut *mut c_void,
        key: *const c_char,
        flags: u64,
    ) -> AclError, SINCE_8_5;
    aclrtIpcMemClose(key: *const c_char) -> AclError, SINCE_8_5;
    // Streams.
    aclrtCreateStream(stream: *mut AclrtStream) -> AclError, ALL;
    aclrtCreateStreamWithConfig(
        stream: *mut AclrtStream,
        priority: u32,
        flag: u32,
    ) -> AclError, ALL;
    aclrtDestroyStream(stream: AclrtStream) -> AclError, ALL;
    aclrtDestroyStreamForce(stream: AclrtStream) -> AclError, ALL;
    aclrtSynchronizeStream(stream: AclrtStream) -> AclError, ALL;
    aclrtSynchronizeStreamWithTimeout(stream: AclrtStream, timeout: i32) -> AclError, ALL;
    aclrtStreamQuery(stream: AclrtStream, status: *mut AclrtStreamStatus) -> AclError, ALL;
    aclrtStreamAbort(stream: AclrtStream) -> AclError, ALL;
    aclrtStreamStop(stream: AclrtStream) -> AclError, SINCE_8_5;
    aclrtStreamGetId(stream: AclrtStream, streamId: *mut i32) -> AclError, ALL;
    aclrtStreamGetFlags(stream: AclrtStream, flags: *mut u32) -> AclError, SINCE_8_5;
    aclrtStreamGetPriority(stream: AclrtStream, priority: *mut u32) -> AclError, SINCE_8_5;
    aclrtSetStreamFailureMode(stream: AclrtStream, mode: u64) -> AclError, ALL;
    aclrtGetStreamAvailableNum(streamCount: *mut u32) -> AclError, SINCE_8_5;
    aclrtDeviceGetStreamPriorityRange(
        leastPriority: *mut i32,
        greatestPriority: *mut i32,
    ) -> AclError, SINCE_8_5;
    // Events.
    aclrtCreateEvent(event: *mut AclrtEvent) -> AclError, ALL;
    aclrtCreateEventWithFlag(event: *mut AclrtEvent, flag: u32) -> AclError, ALL;
    aclrtCreateEventExWithFlag(event: *mut AclrtEvent, flag: u32) -> AclError, ALL;
    aclrtDestroyEvent(event: AclrtEvent) -> AclError, ALL;
    aclrtRecordEvent(event: AclrtEvent, stream: AclrtStream) -> AclError, ALL;
    aclrtResetEvent(event: AclrtEvent, stream: AclrtStream) -> AclError, ALL;
    aclrtStreamWaitEvent(stream: AclrtStream, event: AclrtEvent) -> AclError, ALL;
    aclrtStreamWaitEventWithTimeout(
        stream: AclrtStream,
        event: AclrtEvent,
        timeout: i32,
    ) -> AclError, SINCE_8_5;
    aclrtSynchronizeEvent(event: AclrtEvent) -> AclError, ALL;
    aclrtSynchronizeEventWithTimeout(event: AclrtEvent, timeout: i32) -> AclError, ALL;
    aclrtQueryEvent(event: AclrtEvent, status: *mut AclrtEventStatus) -> AclError, ALL;
    aclrtQueryEventStatus(
        event: AclrtEvent,
        status: *mut AclrtEventRecordedStatus,
    ) -> AclError, ALL;
    aclrtQueryEventWaitStatus(
        event: AclrtEvent,
        status: *mut AclrtEventWaitStatus,
    ) -> AclError, ALL;
    aclrtEventElapsedTime(
        ms: *mut f32,
        startEvent: AclrtEvent,
        endEvent: AclrtEvent,
    ) -> AclError, ALL;
    aclrtEventGetTimestamp(event: AclrtEvent, timestamp: *mut u64) -> AclError, ALL;
    aclrtGetEventId(event: AclrtEvent, eventId: *mut u32) -> AclError, SINCE_8_5;
    aclrtGetEventAvailNum(eventCount: *mut u32) -> AclError, SINCE_8_5;
    // Notifications.
    aclrtCreateNotify(notify: *mut AclrtNotify, flag: u64) -> AclError, SINCE_8_5;
    aclrtDestroyNotify(notify: AclrtNotify) -> AclError, SINCE_8_5;
    aclrtRecordNotify(notify: AclrtNotify, stream: AclrtStream) -> AclError, SINCE_8_5;
    aclrtWaitAndResetNotify(
        notify: AclrtNotify,
        stream: AclrtStream,
        timeout: u32,
    ) -> AclError, SINCE_8_5;
    aclrtGetNotifyId(notify: AclrtNotify, notifyId: *mut u32) -> AclError, SINCE_8_5;
    // Callbacks.
    aclrtLaunchCallback(
        fn: AclrtCallback,
        userData: *mut c_void,
        blockType: AclrtCallbackBlockType,
        stream: AclrtStream,
    ) -> AclError, ALL;
    aclrtLaunchHostFunc(
        stream: AclrtStream,
        fn: AclrtHostFunc,
        args: *mut c_void,
    ) -> AclError, SINCE_8_5;
    aclrtSubscribeReport(threadId: u64, stream: AclrtStream) -> AclError, ALL;
    aclrtUnSubscribeReport(threadId: u64, stream: AclrtStream) -> AclError, ALL;
    aclrtProcessReport(timeout: i32) -> AclError, ALL;
    aclrtSubscribeHostFunc(hostFuncThreadId: u64, exeStream: AclrtStream) -> AclError, ALL;
    aclrtUnSubscribeHostFunc(hostFuncThreadId: u64, exeStream: AclrtStream) -> AclError, ALL;
    aclrtProcessHostFunc(timeout: i32) -> AclError, ALL;
    // Timeouts.
    aclrtSetOpWaitTimeout(timeout: u32) -> AclError, ALL;
    aclrtSetOpExecuteTimeOut(timeout: u32) -> AclError, ALL;
    aclrtSetOpExecuteTimeOutWithMs(timeout: u32) -> AclError, ALL;
    aclrtSetOpExecuteTimeOutV2(timeout: u64, actualTimeout: *mut u64) -> AclError, SINCE_8_5;
    aclrtGetOpExecuteTimeout(timeoutMs: *mut u32) -> AclError, SINCE_8_5;
    aclrtGetOpTimeOutInterval(interval: *mut u64) -> AclError, SINCE_8_5;
}
