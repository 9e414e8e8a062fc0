//! Every function of HCCL that a client may call, with its signature.
//!
//! Functions for authors of their own communication operators stand below by name only: a client
//! does not call them, and the layouts of their arguments are not known here.

use std::ffi::{c_char, c_void};

use super::table::{Family, symbol_table};
use crate::headers::HeaderSet;
use crate::types::{
    AclrtDrvMemHandle, AclrtStream, CommLink, CommTopo, EndpointAttr, EndpointDesc, HcclComm,
    HcclCommConfig, HcclCommStateCallback, HcclCommStatus, HcclCommSymWindow, HcclConfig,
    HcclConfigType, HcclConfigValue, HcclDataType, HcclHeterogMode, HcclReduceOp, HcclResult,
    HcclRootInfo, HcclSendRecvItem,
};

symbol_table! {
    /// The functions of HCCL that were found in the loaded libraries.
    Hccl, Family::Hccl;

    // Communicators: how they begin and end.
    HcclGetRootInfo(rootInfo: *mut HcclRootInfo) -> HcclResult, ALL;
    HcclGetRootInfoScalable(rootInfo: *mut HcclRootInfo) -> HcclResult, TORCH_NPU;
    HcclCommInitRootInfo(
        nRanks: u32,
        rootInfo: *const HcclRootInfo,
        rank: u32,
        comm: *mut HcclComm,
    ) -> HcclResult, ALL;
    HcclCommInitRootInfoConfig(
        nRanks: u32,
        rootInfo: *const HcclRootInfo,
        rank: u32,
        config: *const HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult, ALL;
    HcclCommInitRootInfoScalable(
        nRanks: u32,
        nRoot: u32,
        rootInfoList: *const HcclRootInfo,
        rank: u32,
        nExtRoot: u32,
        config: *const HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult, TORCH_NPU;
    HcclCommInitClusterInfo(
        clusterInfo: *const c_char,
        rank: u32,
        comm: *mut HcclComm,
    ) -> HcclResult, ALL;
    HcclCommInitClusterInfoConfig(
        clusterInfo: *const c_char,
        rank: u32,
        config: *mut HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult, ALL;
    HcclCommInitClusterInfoMemConfig(
        rankTableString: *const c_char,
        rank: u32,
        config: *mut HcclCommConfig,
        comm: *mut HcclComm,
    ) -> HcclResult, NONE;
    HcclCommInitAll(ndev: u32, devices: *mut i32, comms: *mut HcclComm) -> HcclResult, ALL;
    HcclCreateSubCommConfig(
        comm: *mut HcclComm,
        rankNum: u32,
        rankIds: *mut u32,
        subCommId: u64,
        subCommRankId: u32,
        config: *mut HcclCommConfig,
        subComm: *mut HcclComm,
    ) -> HcclResult, ALL;
    HcclCommDestroy(comm: HcclComm) -> HcclResult, ALL;
    // Communicators: questions.
    HcclGetRankSize(comm: HcclComm, rankSize: *mut u32) -> HcclResult, ALL;
    HcclGetRankId(comm: HcclComm, rank: *mut u32) -> HcclResult, ALL;
    HcclGetCommName(comm: HcclComm, commName: *mut c_char) -> HcclResult, ALL;
    HcclCommGetHandleWithName(commName: *const c_char, comm: *mut HcclComm) -> HcclResult, CANN_9_0;
    HcclGetHeterogMode(comm: HcclComm, mode: *mut HcclHeterogMode) -> HcclResult, CANN_8_5;
    HcclCommGetStatus(commId: *const c_char, status: *mut HcclCommStatus) -> HcclResult, CANN_9_1;
    // Errors.
    HcclGetErrorString(code: HcclResult) -> *const c_char, ALL;
    HcclGetCommAsyncError(comm: HcclComm, asyncError: *mut HcclResult) -> HcclResult, ALL;
    // Settings.
    HcclSetConfig(config: HcclConfig, configValue: HcclConfigValue) -> HcclResult, ALL;
    HcclGetConfig(config: HcclConfig, configValue: *mut HcclConfigValue) -> HcclResult, ALL;
    HcclSetCommConfig(
        comm: HcclComm,
        config: HcclConfig,
        configValue: HcclConfigValue,
    ) -> HcclResult, TORCH_NPU;
    HcclGetCommConfig(
        comm: HcclComm,
        config: HcclConfig,
        configValue: *mut HcclConfigValue,
    ) -> HcclResult, TORCH_NPU;
    HcclGetCommConfigCapability() -> u32, ALL;
    HcclConfigGetInfo(
        comm: HcclComm,
        cfgType: HcclConfigType,
        infoLen: u32,
        info: *mut c_void,
    ) -> HcclResult, CANN_9_1;
    // Operations.
    HcclAllReduce(
        sendBuf: *mut c_void,
        recvBuf: *mut c_void,
        count: u64,
        dataType: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclBroadcast(
        buf: *mut c_void,
        count: u64,
        dataType: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclReduce(
        sendBuf: *mut c_void,
        recvBuf: *mut c_void,
        count: u64,
        dataType: HcclDataType,
        op: HcclReduceOp,
        root: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclAllGather(
        sendBuf: *mut c_void,
        recvBuf: *mut c_void,
        sendCount: u64,
        dataType: HcclDataType,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclAllGatherV(
        sendBuf: *mut c_void,
        sendCount: u64,
        recvBuf: *mut c_void,
        recvCounts: *const c_void,
        recvDispls: *const c_void,
        dataType: HcclDataType,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclReduceScatter(
        sendBuf: *mut c_void,
        recvBuf: *mut c_void,
        recvCount: u64,
        dataType: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclReduceScatterV(
        sendBuf: *mut c_void,
        sendCounts: *const c_void,
        sendDispls: *const c_void,
        recvBuf: *mut c_void,
        recvCount: u64,
        dataType: HcclDataType,
        op: HcclReduceOp,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclScatter(
        sendBuf: *mut c_void,
        recvBuf: *mut c_void,
        recvCount: u64,
        dataType: HcclDataType,
        root: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclAlltoAll(
        sendBuf: *const c_void,
        sendCount: u64,
        sendType: HcclDataType,
        recvBuf: *const c_void,
        recvCount: u64,
        recvType: HcclDataType,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclAlltoAllV(
        sendBuf: *const c_void,
        sendCounts: *const c_void,
        sdispls: *const c_void,
        sendType: HcclDataType,
        recvBuf: *const c_void,
        recvCounts: *const c_void,
        rdispls: *const c_void,
        recvType: HcclDataType,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclAlltoAllVC(
        sendBuf: *const c_void,
        sendCountMatrix: *const c_void,
        sendType: HcclDataType,
        recvBuf: *const c_void,
        recvType: HcclDataType,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, SINCE_8_5;
    HcclBarrier(comm: HcclComm, stream: AclrtStream) -> HcclResult, ALL;
    HcclSend(
        sendBuf: *mut c_void,
        count: u64,
        dataType: HcclDataType,
        destRank: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclRecv(
        recvBuf: *mut c_void,
        count: u64,
        dataType: HcclDataType,
        srcRank: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    HcclBatchSendRecv(
        sendRecvInfo: *mut HcclSendRecvItem,
        itemNum: u32,
        comm: HcclComm,
        stream: AclrtStream,
    ) -> HcclResult, ALL;
    // Groups of calls.
    HcclGroupStart() -> HcclResult, SINCE_9_0;
    HcclGroupEnd() -> HcclResult, SINCE_9_0;
    HcclGroupStatusGet(isGroupEnabled: *mut bool) -> HcclResult, HEAD;
    // Suspending, resuming, changes of state.
    HcclCommSuspend(comm: HcclComm) -> HcclResult, ALL;
    HcclCommResume(comm: HcclComm) -> HcclResult, ALL;
    HcclCommWorkingDevNicSet(
        comm: HcclComm,
        ranks: *mut u32,
        useBackup: *mut bool,
        nRanks: u32,
    ) -> HcclResult, SINCE_8_5;
    HcclCommRegCommStateCallback(
        regName: *const c_char,
        cb: HcclCommStateCallback,
        args: *mut c_void,
    ) -> HcclResult, HEAD;
    // Memory: zero copy, registration, windows.
    HcclCommSetMemoryRange(
        comm: HcclComm,
        baseVirPtr: *mut c_void,
        size: usize,
        alignment: usize,
        flags: u64,
    ) -> HcclResult, ALL;
    HcclCommUnsetMemoryRange(comm: HcclComm, baseVirPtr: *mut c_void) -> HcclResult, ALL;
    HcclCommActivateCommMemory(
        comm: HcclComm,
        virPtr: *mut c_void,
        size: usize,
        offset: usize,
        handle: AclrtDrvMemHandle,
        flags: u64,
    ) -> HcclResult, ALL;
    HcclCommDeactivateCommMemory(comm: HcclComm, virPtr: *mut c_void) -> HcclResult, ALL;
    HcclCommRegister(
        comm: HcclComm,
        addr: *mut c_void,
        size: u64,
        handle: *mut *mut c_void,
        flag: u32,
    ) -> HcclResult, TORCH_NPU;
    HcclCommDeregister(comm: HcclComm, handle: *mut c_void) -> HcclResult, TORCH_NPU;
    HcclCommExchangeMem(
        comm: HcclComm,
        windowHandle: *mut c_void,
        peerRanks: *mut u32,
        peerRankNum: u32,
    ) -> HcclResult, TORCH_NPU;
    HcclCommSymWinRegister(
        comm: HcclComm,
        addr: *mut c_void,
        size: u64,
        winHandle: *mut HcclCommSymWindow,
        flag: u32,
    ) -> HcclResult, CANN_9_0;
    HcclCommSymWinDeregister(winHandle: HcclCommSymWindow) -> HcclResult, CANN_9_0;
    HcclCommSymWinGet(
        comm: HcclComm,
        ptr: *mut c_void,
        size: usize,
        winHandle: *mut HcclCommSymWindow,
        offset: *mut usize,
    ) -> HcclResult, CANN_9_0;
    HcclSymWinGetPeerPointer(
        winHandle: HcclCommSymWindow,
        offset: usize,
        peerRank: u32,
        ptr: *mut *mut c_void,
    ) -> HcclResult, CANN_9_0;
    HcclGetHcclBuffer(
        comm: HcclComm,
        buffer: *mut *mut c_void,
        size: *mut u64,
    ) -> HcclResult, CANN_8_5;
    HcclGetHcclBufferCleared(
        comm: HcclComm,
        buffer: *mut *mut c_void,
        size: *mut u64,
    ) -> HcclResult, HEAD;
    // The graph of the ranks.
    HcclRankGraphGetEndpointDesc(
        comm: HcclComm,
        layer: u32,
        topoInstId: u32,
        descNum: *mut u32,
        endpointDesc: *mut EndpointDesc,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetEndpointInfo(
        comm: HcclComm,
        rankId: u32,
        endpointDesc: *const EndpointDesc,
        endpointAttr: EndpointAttr,
        infoLen: u32,
        info: *mut c_void,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetEndpointNum(
        comm: HcclComm,
        layer: u32,
        topoInstId: u32,
        num: *mut u32,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetInstSizeListByLayer(
        comm: HcclComm,
        netLayer: u32,
        instSizeList: *mut *mut u32,
        listSize: *mut u32,
    ) -> HcclResult, CANN_8_5;
    HcclRankGraphGetLayers(
        comm: HcclComm,
        netLayers: *mut *mut u32,
        netLayerNum: *mut u32,
    ) -> HcclResult, CANN_8_5;
    HcclRankGraphGetLinks(
        comm: HcclComm,
        netLayer: u32,
        srcRank: u32,
        dstRank: u32,
        links: *mut *mut CommLink,
        linkNum: *mut u32,
    ) -> HcclResult, CANN_8_5;
    HcclRankGraphGetRankSizeByLayer(
        comm: HcclComm,
        netLayer: u32,
        rankNum: *mut u32,
    ) -> HcclResult, CANN_8_5;
    HcclRankGraphGetRanksByLayer(
        comm: HcclComm,
        netLayer: u32,
        ranks: *mut *mut u32,
        rankNum: *mut u32,
    ) -> HcclResult, CANN_8_5;
    HcclRankGraphGetRanksByTopoInst(
        comm: HcclComm,
        netLayer: u32,
        topoInstId: u32,
        ranks: *mut *mut u32,
        rankNum: *mut u32,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetTopoInstsByLayer(
        comm: HcclComm,
        netLayer: u32,
        topoInsts: *mut *mut u32,
        topoInstNum: *mut u32,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetTopoType(
        comm: HcclComm,
        netLayer: u32,
        topoInstId: u32,
        topoType: *mut CommTopo,
    ) -> HcclResult, CANN_9_0;
    HcclRankGraphGetTopoTypeByLayer(
        comm: HcclComm,
        netLayer: u32,
        topoType: *mut CommTopo,
    ) -> HcclResult, CANN_8_5;
}

/// Functions for authors of operators: looked for, shown, and not called.
pub(crate) const OPERATOR_AUTHORS: &[(&str, HeaderSet)] = &[
    ("HcclAicpuKernelLaunch", HeaderSet::HEAD),
    ("HcclChannelAcquire", HeaderSet::CANN_8_5),
    ("HcclChannelAcquireWithConfig", HeaderSet::HEAD),
    ("HcclChannelConfigCreate", HeaderSet::HEAD),
    ("HcclChannelConfigDestroy", HeaderSet::HEAD),
    ("HcclChannelConfigSetInt", HeaderSet::HEAD),
    ("HcclChannelConfigSetStr", HeaderSet::HEAD),
    ("HcclChannelDestroy", HeaderSet::HEAD),
    ("HcclChannelGetHcclBuffer", HeaderSet::CANN_8_5),
    ("HcclChannelGetRemoteMems", HeaderSet::CANN_9_0),
    ("HcclChannelQuery", HeaderSet::HEAD),
    ("HcclCommMemReg", HeaderSet::CANN_9_0),
    ("HcclDedicatedThreadAcquire", HeaderSet::HEAD),
    ("HcclEngineCtxCopy", HeaderSet::CANN_8_5),
    ("HcclEngineCtxCreate", HeaderSet::CANN_8_5),
    ("HcclEngineCtxDestroy", HeaderSet::CANN_9_0),
    ("HcclEngineCtxGet", HeaderSet::CANN_8_5),
    ("HcclSubTeamCreate", HeaderSet::HEAD),
    ("HcclTeamChannelsCreate", HeaderSet::HEAD),
    ("HcclTeamDestroy", HeaderSet::HEAD),
    ("HcclTeamWindowDeregister", HeaderSet::HEAD),
    ("HcclTeamWindowRegister", HeaderSet::HEAD),
    ("HcclThreadAcquire", HeaderSet::CANN_8_5),
    ("HcclThreadAcquireWithConfig", HeaderSet::HEAD),
    ("HcclThreadAcquireWithStream", HeaderSet::CANN_8_5),
    ("HcclThreadResGetInfo", HeaderSet::CANN_9_1),
    ("HcclWorldTeamCreate", HeaderSet::HEAD),
];
