// Conversions between element types.
#include "kernel.h"

namespace simgpu {
namespace {

template <class A, class B>
struct Cast {
  KERNEL_NAME("Cast")
  explicit Cast(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), out = c.out<B>(0, a.dims);
    if (!out.count) return;
    c.run(0, a.count * (sizeof(A) + sizeof(B)), [a, out] {
      for (int64_t i = 0; i < out.count; i++) {
        auto v = typename Arithmetic<A>::type(a.as<A>()[i]);
        // To bool: anything that is not zero. To a short integer: wraps, where C++ leaves it open for floats.
        if constexpr (std::is_same<B, bool>::value)
          out.as<B>()[i] = v != 0;
        else if constexpr (std::is_integral<B>::value && sizeof(B) < 8 && std::is_floating_point<decltype(v)>::value)
          out.as<B>()[i] = B(int64_t(v));
        else
          out.as<B>()[i] = B(typename Arithmetic<B>::type(v));
      }
    });
  }
};

template <class A, class... B>
void reg_casts() {
  for_types<B...>([](auto b) {
    typedef decltype(b) To;
    reg<Cast<A, To>>("Cast", {{"SrcT", TypeOf<A>::value}, {"DstT", TypeOf<To>::value}});
  });
}

}  // namespace

void register_casts() {
#define ALL float, double, half, bf16, int64_t, int32_t, uint8_t, int8_t, uint16_t, int16_t, uint32_t, uint64_t, bool
  for_types<ALL>([](auto a) { reg_casts<decltype(a), ALL>(); });
#undef ALL
}

}  // namespace simgpu
