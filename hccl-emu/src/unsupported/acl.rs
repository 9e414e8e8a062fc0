//! Calls of ACL that need kernels, models, queues or profiling, and of newer runtimes.

use super::unsupported;
use crate::runtime::errors::AclError;

unsupported! { codes AclError::RT_FEATURE_NOT_SUPPORT;
    aclmdlRIAbort, aclmdlRIAddCondTask, aclmdlRIBindStream, aclmdlRIBuildBegin,
    aclmdlRIBuildEnd, aclmdlRICaptureBegin, aclmdlRICaptureEnd, aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
    aclmdlRICaptureTaskUpdateEnd, aclmdlRICaptureThreadExchangeMode,
    aclmdlRICaptureToModelRIBegin, aclmdlRICondHandleCreate, aclmdlRICondHandleGetCondPtr,
    aclmdlRIDebugJsonPrint, aclmdlRIDebugPrint, aclmdlRIDestroy,
    aclmdlRIDestroyRegisterCallback, aclmdlRIDestroyUnregisterCallback, aclmdlRIEndTask,
    aclmdlRIExecute, aclmdlRIExecuteAsync, aclmdlRIGetId, aclmdlRIGetName, aclmdlRIGetStreams,
    aclmdlRIGetTasksByStream, aclmdlRIKernelTaskGetAttribute, aclmdlRISetName,
    aclmdlRITaskDisable, aclmdlRITaskGetParams, aclmdlRITaskGetSeqId, aclmdlRITaskGetType,
    aclmdlRITaskSetParams, aclmdlRIUnbindStream, aclmdlRIUpdate, aclrtActiveStream,
    aclrtAllocBuf, aclrtAllocatorDestroyDesc, aclrtAllocatorGetByStream, aclrtAllocatorRegister,
    aclrtAllocatorSetAllocAdviseFuncToDesc, aclrtAllocatorSetAllocFuncToDesc,
    aclrtAllocatorSetFreeFuncToDesc, aclrtAllocatorSetGetAddrFromBlockFuncToDesc,
    aclrtAllocatorSetObjToDesc, aclrtAllocatorUnregister, aclrtAppendBufChain,
    aclrtBinaryGetDevAddress, aclrtBinaryGetFunction, aclrtBinaryGetFunctionByEntry,
    aclrtBinaryGetGlobal, aclrtBinaryLoad, aclrtBinaryLoadFromData, aclrtBinaryLoadFromFile,
    aclrtBinarySetExceptionCallback, aclrtBinaryUnLoad, aclrtCacheLastTaskExtendInfo,
    aclrtCacheLastTaskOpInfo, aclrtCheckArchCompatibility, aclrtCheckMemType, aclrtCmoAsync,
    aclrtCmoAsyncWithBarrier, aclrtCmoAsyncWithDesc, aclrtCmoGetDescSize, aclrtCmoSetDesc,
    aclrtCmoWaitBarrier, aclrtCntNotifyCreate, aclrtCntNotifyDestroy, aclrtCntNotifyGetId,
    aclrtCntNotifyRecord, aclrtCntNotifyReset, aclrtCntNotifyWaitWithTimeout, aclrtCopyBufRef,
    aclrtCreateLabel, aclrtCreateLabelList, aclrtCreateNotify, aclrtCreateStreamV2,
    aclrtCtxGetFloatOverflowAddr, aclrtDestroyBinary,
    aclrtDestroyGroupInfo, aclrtDestroyLabel, aclrtDestroyLabelList, aclrtDestroyNotify,
    aclrtDestroyStreamConfigHandle, aclrtDeviceGetByPCIBusId,
    aclrtDeviceGetHostAtomicCapabilities, aclrtDeviceGetLimit,
    aclrtDeviceGetP2PAtomicCapabilities, aclrtDeviceGetPCIBusId, aclrtDeviceL2CacheFlush,
    aclrtDeviceSetLimit, aclrtFreeBuf, aclrtFunctionGetAvailDynUbufPerBlock,
    aclrtFunctionGetBinary, aclrtFunctionGetParamCount, aclrtFunctionGetParamInfo,
    aclrtGetAllGroupInfo, aclrtGetArgsFromExceptionInfo, aclrtGetBufChainNum, aclrtGetBufData,
    aclrtGetBufDataLen, aclrtGetBufFromChain, aclrtGetBufUserData, aclrtGetDeviceCapability,
    aclrtGetDeviceResLimit, aclrtGetDeviceUtilizationRate, aclrtGetDevicesTopo,
    aclrtGetErrorVerbose, aclrtGetEventAvailNum, aclrtGetFloatOverflowStatus,
    aclrtGetFuncBySymbol, aclrtGetFuncHandleFromExceptionInfo, aclrtGetFunctionAddr,
    aclrtGetFunctionAttribute, aclrtGetFunctionName, aclrtGetFunctionSize, aclrtGetGroupCount,
    aclrtGetGroupInfoDetail, aclrtGetHardwareSyncAddr, aclrtGetMemUceInfo, aclrtGetMemUsageInfo,
    aclrtGetMemcpyDescSize, aclrtGetNotifyId, aclrtGetOpExecuteTimeout,
    aclrtGetOpTimeOutInterval, aclrtGetOverflowStatus, aclrtGetResInCurrentThread,
    aclrtGetStreamAttribute, aclrtGetStreamOverflowSwitch, aclrtGetStreamResLimit,
    aclrtGetSymbolAddress, aclrtGetSymbolSize, aclrtGetThreadLastTaskId,
    aclrtHostGetDevicePointer, aclrtHostMemMapCapabilities, aclrtHostRegister,
    aclrtHostRegisterV2, aclrtHostUnregister, aclrtIpcGetEventHandle, aclrtIpcMemClose,
    aclrtIpcMemGetExportKey, aclrtIpcMemImportByKey, aclrtIpcMemImportPidInterServer,
    aclrtIpcMemSetAttr, aclrtIpcMemSetImportPid, aclrtIpcOpenEventHandle, aclrtKernelArgsAppend,
    aclrtKernelArgsAppendPlaceHolder, aclrtKernelArgsFinalize, aclrtKernelArgsGetHandleMemSize,
    aclrtKernelArgsGetMemSize, aclrtKernelArgsGetPlaceHolderBuffer, aclrtKernelArgsInit,
    aclrtKernelArgsInitByUserMem, aclrtKernelArgsParaUpdate, aclrtLaunchKernel,
    aclrtLaunchKernelV2, aclrtLaunchKernelWithArgsArray, aclrtLaunchKernelWithConfig,
    aclrtLaunchKernelWithHostArgs, aclrtLaunchSIMTKernelWithArgsArray,
    aclrtLaunchSIMTKernelWithHostArgs, aclrtMemAllocManaged, aclrtMemExportToShareableHandle,
    aclrtMemExportToShareableHandleV2, aclrtMemGetAccess,
    aclrtMemGetAllocationPropertiesFromHandle, aclrtMemImportFromShareableHandle,
    aclrtMemImportFromShareableHandleV2, aclrtMemManagedAdvise, aclrtMemManagedGetAttr,
    aclrtMemManagedGetAttrs, aclrtMemManagedPrefetchAsync, aclrtMemManagedPrefetchBatchAsync,
    aclrtMemMapNoAccess, aclrtMemMapSelectedLink, aclrtMemMapSetLink, aclrtMemP2PMap,
    aclrtMemRetainAllocationHandle, aclrtMemSetPidToShareableHandle,
    aclrtMemSetPidToShareableHandleV2, aclrtMemUceRepair, aclrtMemcpyAsyncWithDesc,
    aclrtMemcpyAsyncWithOffset, aclrtMemcpyBatch, aclrtMemcpyBatchAsync,
    aclrtMemcpyBatchAsyncV2, aclrtMemcpyBatchV2, aclrtMemcpyFromSymbol,
    aclrtMemcpyFromSymbolAsync, aclrtMemcpyToSymbol, aclrtMemcpyToSymbolAsync, aclrtMemsetD32,
    aclrtMemsetD32Async, aclrtNotifyBatchReset, aclrtNotifyGetExportKey, aclrtNotifyImportByKey,
    aclrtNotifySetImportPid, aclrtNotifySetImportPidInterServer,
    aclrtNpuClearFloatOverFlowStatus, aclrtNpuGetFloatOverFlowStatus, aclrtPersistentTaskClean,
    aclrtProcessHostFunc, aclrtProfTrace, aclrtRandomNumAsync, aclrtRecordEventWithFlag,
    aclrtRecordNotify, aclrtReduceAsync, aclrtRegDeviceStateCallback,
    aclrtRegStreamStateCallback, aclrtRegisterCpuFunc, aclrtRepairError,
    aclrtReserveMemAddressNoUCMemory, aclrtResetDeviceResLimit, aclrtResetDeviceWithoutTsdVXX,
    aclrtResetFloatOverflowStatus, aclrtResetOverflowStatus, aclrtResetStreamResLimit,
    aclrtSetBufDataLen, aclrtSetBufUserData, aclrtSetDeviceResLimit,
    aclrtSetDeviceTaskAbortCallback, aclrtSetDeviceWithoutTsdVXX, aclrtSetGroup, aclrtSetLabel,
    aclrtSetMemcpyDesc, aclrtSetStreamAttribute, aclrtSetStreamConfigOpt,
    aclrtSetStreamOverflowSwitch, aclrtSetStreamResLimit, aclrtSetTsDevice,
    aclrtSnapShotCallbackRegister, aclrtSnapShotCallbackUnregister, aclrtSnapShotProcessBackup,
    aclrtSnapShotProcessLock, aclrtSnapShotProcessRestore, aclrtSnapShotProcessUnlock,
    aclrtStreamWaitEventWithFlag, aclrtSubscribeHostFunc, aclrtSwitchLabelByIndex,
    aclrtSwitchStream, aclrtTaskUpdateAsync, aclrtUnSubscribeHostFunc,
    aclrtUnuseStreamResInCurrentThread, aclrtUseStreamResInCurrentThread, aclrtValueWait,
    aclrtValueWrite, aclrtWaitAndResetNotify
}

unsupported! { pointers;
    aclrtAllocatorCreateDesc, aclrtCreateBinary, aclrtCreateGroupInfo,
    aclrtCreateStreamConfigHandle
}

unsupported! { numbers;
    aclrtGetDeviceIdFromExceptionInfo, aclrtGetErrorCodeFromExceptionInfo,
    aclrtGetStreamIdFromExceptionInfo, aclrtGetTaskIdFromExceptionInfo,
    aclrtGetThreadIdFromExceptionInfo
}

unsupported! { codes AclError::API_NOT_SUPPORT;
    aclDestroyGraphDumpOpt, aclFinalizeCallbackRegister,
    aclFinalizeCallbackUnRegister, aclGenGraphAndDumpForOp, aclGetTensorDescDimRange, aclGetTensorDescDimV2,
    aclInitCallbackRegister, aclInitCallbackUnRegister,
    aclSetTensorDynamicInput, aclSetTensorOriginFormat,
    aclSetTensorOriginShape, aclSetTensorShapeRange,
    aclSetTensorStorageFormat, aclSetTensorStorageShape, aclSetTensorValueRange,
    aclTransTensorDescFormat, aclUpdateDataBuffer, acldumpRegCallback, acldumpUnregCallback,
    aclmdlAddDatasetBuffer, aclmdlBundleGetModelId, aclmdlBundleGetModelNum,
    aclmdlBundleGetSize, aclmdlBundleInitFromFile, aclmdlBundleInitFromMem,
    aclmdlBundleLoadFromFile, aclmdlBundleLoadFromMem, aclmdlBundleLoadModel,
    aclmdlBundleQueryInfoFromFile, aclmdlBundleQueryInfoFromMem, aclmdlBundleUnload,
    aclmdlBundleUnloadModel, aclmdlCreateAndGetOpDesc, aclmdlDestroyAIPP,
    aclmdlDestroyBundleQueryInfo, aclmdlDestroyConfigHandle, aclmdlDestroyDataset,
    aclmdlDestroyDesc, aclmdlDestroyExecConfigHandle, aclmdlExecute, aclmdlExecuteAsync,
    aclmdlExecuteAsyncV2, aclmdlExecuteV2, aclmdlFinalizeDump, aclmdlGetAippType,
    aclmdlGetCurOutputDims, aclmdlGetDesc, aclmdlGetDescFromFile, aclmdlGetDescFromMem,
    aclmdlGetDynamicBatch, aclmdlGetDynamicHW, aclmdlGetFirstAippInfo, aclmdlGetInputDims,
    aclmdlGetInputDimsRange, aclmdlGetInputDimsV2, aclmdlGetInputDynamicDims,
    aclmdlGetInputDynamicGearCount, aclmdlGetInputIndexByName, aclmdlGetOutputDims,
    aclmdlGetOutputIndexByName, aclmdlInitDump, aclmdlLoadFromFile, aclmdlLoadFromFileWithMem,
    aclmdlLoadFromFileWithQ, aclmdlLoadFromMem, aclmdlLoadFromMemWithMem,
    aclmdlLoadFromMemWithQ, aclmdlLoadWithConfig, aclmdlQueryExeOMDesc, aclmdlQuerySize,
    aclmdlQuerySizeFromMem, aclmdlSetAIPPAxSwapSwitch, aclmdlSetAIPPByInputIndex,
    aclmdlSetAIPPCropParams, aclmdlSetAIPPCscParams, aclmdlSetAIPPDtcPixelMean,
    aclmdlSetAIPPDtcPixelMin, aclmdlSetAIPPInputFormat, aclmdlSetAIPPPaddingParams,
    aclmdlSetAIPPPixelVarReci, aclmdlSetAIPPRbuvSwapSwitch, aclmdlSetAIPPScfParams,
    aclmdlSetAIPPSrcImageSize, aclmdlSetConfigOpt, aclmdlSetDatasetTensorDesc, aclmdlSetDump,
    aclmdlSetDynamicBatchSize, aclmdlSetDynamicHWSize, aclmdlSetExecConfigOpt,
    aclmdlSetExternalWeightAddress, aclmdlSetInputAIPP, aclmdlSetInputDynamicDims, aclmdlUnload,
    aclopCast, aclopCompile,
    aclopCreateHandle, aclopCreateHandleForCast, aclopCreateKernel, aclopExecWithHandle,
    aclopExecute, aclopExecuteV2, aclopInferShape, aclopLoad, aclopRegisterCompileFunc,


    aclopSetCompileFlag,
    aclopSetKernelArgs, aclopSetKernelWorkspaceSizes, aclopSetMaxOpQueueNum, aclopSetModelDir,
    aclopStartDumpArgs, aclopStopDumpArgs, aclopUnregisterCompileFunc, aclopUpdateParams,
    aclprofDestroyConfig, aclprofDestroySubscribeConfig, aclprofFinalize, aclprofGetOpDescSize,
    aclprofGetOpFlag, aclprofGetOpName, aclprofGetOpNameLen, aclprofGetOpNum, aclprofGetOpType,
    aclprofGetOpTypeLen, aclprofGetStepTimestamp, aclprofGetSupportedFeatures,
    aclprofGetSupportedFeaturesV2, aclprofInit, aclprofMark, aclprofMarkEx,
    aclprofModelSubscribe, aclprofModelUnSubscribe, aclprofPop, aclprofPush, aclprofRangeStart,
    aclprofRangeStop, aclprofRegisterDeviceCallback, aclprofSetCategoryName, aclprofSetConfig,
    aclprofSetStampCategory, aclprofSetStampPayload, aclprofSetStampTraceMessage, aclprofStart,
    aclprofStop, aclprofWarmup, acltdtAddDataItem, acltdtAddQueueRoute, acltdtAllocBuf, acltdtAppendBufChain,
    acltdtAttachQueue, acltdtBindQueueRoutes, acltdtCleanChannel, acltdtCopyBufRef,
    acltdtCreateQueue, acltdtDequeueQueue, acltdtDequeueQueueData, acltdtDestroyChannel,
    acltdtDestroyDataItem, acltdtDestroyDataset, acltdtDestroyQueue, acltdtDestroyQueueAttr,
    acltdtDestroyQueueRoute, acltdtDestroyQueueRouteList, acltdtDestroyQueueRouteQueryInfo,
    acltdtEnqueueQueue, acltdtEnqueueQueueData, acltdtFreeBuf, acltdtGetBufChainNum,
    acltdtGetBufData, acltdtGetBufDataLen, acltdtGetBufFromChain, acltdtGetBufUserData,
    acltdtGetDimsFromItem, acltdtGetQueueAttr, acltdtGetQueueRoute, acltdtGetQueueRouteParam,
    acltdtGetTensorTypeFromItem, acltdtGrantQueue, acltdtQueryChannelSize,
    acltdtQueryQueueRoutes, acltdtReceiveTensor, acltdtSendTensor, acltdtSetBufDataLen,
    acltdtSetBufUserData, acltdtSetQueueAttr, acltdtSetQueueRouteQueryInfo, acltdtStopChannel,
    acltdtUnbindQueueRoutes
}

unsupported! { pointers;
    aclCreateGraphDumpOpt,
    aclGetTensorDescAddress, aclGetTensorDescByIndex, aclGetTensorDescName, acldumpGetPath,
    aclmdlCreateAIPP, aclmdlCreateBundleQueryInfo, aclmdlCreateConfigHandle,
    aclmdlCreateDataset, aclmdlCreateDesc, aclmdlCreateExecConfigHandle, aclmdlGetDatasetBuffer,
    aclmdlGetDatasetTensorDesc, aclmdlGetInputNameByIndex, aclmdlGetOpAttr,
    aclmdlGetOutputNameByIndex, aclmdlGetTensorRealName, aclprofCreateConfig,
    aclprofCreateStamp, aclprofCreateStepInfo, aclprofCreateSubscribeConfig,
    aclprofGetOpAttriValue, acltdtCreateChannel, acltdtCreateChannelWithCapacity,
    acltdtCreateDataItem, acltdtCreateDataset, acltdtCreateQueueAttr, acltdtCreateQueueRoute,
    acltdtCreateQueueRouteList, acltdtCreateQueueRouteQueryInfo, acltdtGetDataAddrFromItem,
    acltdtGetDataItem, acltdtGetDatasetName, acltdtGetSliceInfoFromItem
}

unsupported! { numbers;
    aclGetTensorDescDim,

    aclmdlGetDatasetNumBuffers,
    aclmdlGetInputDataType, aclmdlGetInputFormat, aclmdlGetInputSizeByIndex, aclmdlGetNumInputs,
    aclmdlGetNumOutputs, aclmdlGetOutputDataType, aclmdlGetOutputFormat,
    aclmdlGetOutputSizeByIndex, aclprofGetId, aclprofGetModelId, aclprofGetOpDuration,
    aclprofGetOpEnd, aclprofGetOpStart, aclprofGetOpTime, aclprofStr2Id,
    acltdtGetDataSizeFromItem, acltdtGetDataTypeFromItem, acltdtGetDatasetSize,
    acltdtGetDimNumFromItem, acltdtGetQueueRouteNum
}

unsupported! { nothing;
    aclopDestroyHandle,
    aclprofDestroyStamp, aclprofDestroyStepInfo
}

// Names of other libraries of the vendor that torch_npu is linked with.

unsupported! { codes AclError::RT_FEATURE_NOT_SUPPORT;
    MsprofReportAdditionalInfo, MsprofReportApi, MsprofReportCompactInfo, rtDevBinaryRegister,
    rtFunctionRegister, rtGetC2cCtrlAddr, rtKernelLaunch
}

unsupported! { numbers;
    MsprofGetHashId
}

/// A client that wants to be told when profiling begins: it never does.
#[unsafe(no_mangle)]
extern "C" fn MsprofRegisterCallback() -> i32 {
    AclError::NONE.0
}

/// The clock of the profiler, in nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn MsprofSysCycleTime() -> u64 {
    let elapsed = crate::runtime::state().began.elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
