#include "comm/call.hpp"

namespace fedhpc {

const char* name(Call call) {
  switch (call) {
    case Call::None:
      return "no collective";
    case Call::Sum:
      return "a sum over ranks";
    case Call::Maximum:
      return "a maximum over ranks";
    case Call::Broadcast:
      return "a broadcast";
    case Call::Gather:
      return "a gather";
    case Call::GatherOnAll:
      return "a gather on all ranks";
    case Call::AllToAll:
      return "an all-to-all";
    case Call::Texts:
      return "an exchange of texts";
    case Call::Barrier:
      return "a barrier";
    case Call::Delivery:
      return "a move of clients";
    case Call::SplitOfNccl:
      return "a split of NCCL's communicator";
    case Call::StartOfNccl:
      return "the start of NCCL";
  }
  return "";
}

}  // namespace fedhpc
