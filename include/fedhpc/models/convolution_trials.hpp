#pragma once

namespace fedhpc {

/// Which way of computing a convolution is fastest on a device is measured when its shape first
/// comes up, for which the host waits. While one of these lives, it is not: on this thread, shapes
/// not met before are taken the way that needs no trial. For work that is being captured; running
/// it once beforehand, uncaptured, finds the fastest ways.
class NoConvolutionTrials {
 public:
  NoConvolutionTrials();
  ~NoConvolutionTrials();
  NoConvolutionTrials(const NoConvolutionTrials&) = delete;
  NoConvolutionTrials& operator=(const NoConvolutionTrials&) = delete;
};

}  // namespace fedhpc
