// Into how many pieces this process' processors cut an operation, whatever the number of threads that do them.
//
// TensorFlow's kernels, Eigen and oneDNN ask the pool of threads for its size, and cut sums and products accordingly,
// which decides their last bits. Here the pool says another number than it has.

#define EIGEN_USE_THREADS

#include <map>
#include <new>
#include <utility>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace {

using Workers = tensorflow::DeviceBase::CpuWorkerThreads;

// A pool that does the work of another one.
class Pool : public tensorflow::thread::ThreadPoolInterface {
 public:
  Pool(Eigen::ThreadPoolInterface* threads, int pieces) : threads_(threads), pieces_(pieces) {}
  void Schedule(std::function<void()> work) override { threads_->Schedule(std::move(work)); }
  void Cancel() override { threads_->Cancel(); }
  int NumThreads() const override { return pieces_; }
  int CurrentThreadId() const override { return threads_->CurrentThreadId(); }

 private:
  Eigen::ThreadPoolInterface* const threads_;
  const int pieces_;
};

// The pools of one group of devices. They are as long as the process: kernels may keep pointers to them.
struct Pools {
  Eigen::ThreadPoolInterface* threads;
  std::map<int, std::pair<Pool*, tensorflow::thread::ThreadPool*>> by_pieces;
};

tensorflow::mutex lock(tensorflow::LINKER_INITIALIZED);

class Pieces : public tensorflow::OpKernel {
 public:
  explicit Pieces(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("pieces", &pieces_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::mutex_lock held(lock);
    static auto* all = new std::map<const Workers*, Pools>;
    // TensorFlow gives kernels both to read. No operation runs meanwhile.
    auto* workers = const_cast<Workers*>(context->device()->tensorflow_cpu_worker_threads());
    auto* device = const_cast<Eigen::ThreadPoolDevice*>(context->device()->eigen_cpu_device());
    auto found = all->find(workers);
    if (found == all->end()) {
      found = all->emplace(workers, Pools{workers->workers->AsEigenThreadPool(), {}}).first;
    }
    auto& [pool, threads] = found->second.by_pieces[pieces_];
    if (pool == nullptr) {
      pool = new Pool(found->second.threads, pieces_);
      threads = new tensorflow::thread::ThreadPool(pool);
    }
    workers->workers = threads;
    workers->num_threads = pieces_;
    auto* const allocator = device->allocator();
    device->~ThreadPoolDevice();
    new (device) Eigen::ThreadPoolDevice(pool, pieces_, allocator);
  }

 private:
  int pieces_;
};

REGISTER_OP("EmbexpPieces").Attr("pieces: int >= 1").SetIsStateful();
REGISTER_KERNEL_BUILDER(Name("EmbexpPieces").Device(tensorflow::DEVICE_CPU), Pieces);

}  // namespace
