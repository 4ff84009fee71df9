// Operations whose last bits every processor with AVX2 has alike, in the place of TensorFlow's own.
//
// Eigen begins a reciprocal, and that of a square root, with an approximation of the processor, and each maker has its
// own. Here both are divisions, which IEEE 754 rounds to the nearest number. The kernels go before TensorFlow's where a
// process with EMBEXP_PORTABLE has loaded this library.

#include <algorithm>

#include "rules.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

template <typename Function>
class Unary : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& input = context->input(0);
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, input.shape(), &output));
    const float* from = input.flat<float>().data();
    float* to = output->flat<float>().data();
    constexpr int64_t kCyclesPerNumber = 10;
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
        input.NumElements(), kCyclesPerNumber,
        [from, to](int64_t start, int64_t stop) { std::transform(from + start, from + stop, to + start, Function()); });
  }
};

struct Rsqrt {
  float operator()(float x) const { return embexp::functions::ExactRsqrt(x); }
};
struct Inverse {
  float operator()(float x) const { return embexp::functions::ExactInverse(x); }
};

template <typename Function>
void Put(const char* operation) {
  using tensorflow::OpKernel;
  using tensorflow::OpKernelConstruction;
  const auto* definition = tensorflow::register_kernel::Name(operation)
                               .Device(tensorflow::DEVICE_CPU)
                               .TypeConstraint<float>("T")
                               .Priority(1)
                               .Build();
  tensorflow::kernel_factory::OpKernelRegistrar(
      definition, operation, [](OpKernelConstruction* context) -> OpKernel* { return new Unary<Function>(context); });
}

[[maybe_unused]] const bool put = [] {
  if (embexp::functions::portable) {
    Put<Rsqrt>("Rsqrt");
    Put<Inverse>("Reciprocal");
    Put<Inverse>("Inv");
  }
  return embexp::functions::portable;
}();

}  // namespace
