//! Calls of HCCL for authors of their own operators, and of products that are not played.

use super::unsupported;
use crate::runtime::errors::AclError;

unsupported! { codes AclError(5);
    HcclAicpuKernelLaunch, HcclChannelAcquire, HcclChannelAcquireWithConfig,
    HcclChannelConfigCreate, HcclChannelConfigDestroy, HcclChannelConfigSetInt,
    HcclChannelConfigSetStr, HcclChannelDestroy, HcclChannelGetHcclBuffer,
    HcclChannelGetRemoteMems, HcclChannelQuery,   HcclCommDeregister, HcclCommExchangeMem, HcclCommMemReg,
    HcclCommRegister,   HcclCommWorkingDevNicSet, HcclConfigGetInfo,
    HcclDedicatedThreadAcquire, HcclEngineCtxCopy, HcclEngineCtxCreate, HcclEngineCtxDestroy,
    HcclEngineCtxGet, HcclGetHcclBuffer, HcclGetHcclBufferCleared, HcclGetHeterogMode,
    HcclRankGraphGetEndpointDesc, HcclRankGraphGetEndpointInfo, HcclRankGraphGetEndpointNum,
    HcclRankGraphGetInstSizeListByLayer, HcclRankGraphGetLayers, HcclRankGraphGetLinks,
    HcclRankGraphGetRankSizeByLayer, HcclRankGraphGetRanksByLayer,
    HcclRankGraphGetRanksByTopoInst, HcclRankGraphGetTopoInstsByLayer, HcclRankGraphGetTopoType,
    HcclRankGraphGetTopoTypeByLayer, HcclSubTeamCreate,
    HcclTeamChannelsCreate, HcclTeamDestroy, HcclTeamWindowDeregister, HcclTeamWindowRegister,
    HcclThreadAcquire, HcclThreadAcquireWithConfig, HcclThreadAcquireWithStream,
    HcclThreadResGetInfo, HcclWorldTeamCreate
}
