// Diagonals and bands of matrices.
#include "walk.h"

namespace simgpu {
namespace {

// Diagonals k[0] to k[1] of matrices, as TensorFlow packs them: aligned to the left or the right of each row.
struct Diagonals {
  int64_t low = 0, high = 0;
  std::string align = "RIGHT_LEFT";
  bool attr_align = false;
  void read_k(Call& c, int input) {
    Dims k = c.host_dims(input);
    low = k.at(0), high = k.back();
  }
  int64_t longest(int64_t rows, int64_t columns) const {
    return std::min(rows + std::min<int64_t>(high, 0), columns - std::max<int64_t>(low, 0));
  }
  static int64_t length(int64_t k, int64_t rows, int64_t columns) {
    return std::min(rows + std::min<int64_t>(k, 0), columns - std::max<int64_t>(k, 0));
  }
  int64_t shift(int64_t k, int64_t longest, int64_t rows, int64_t columns) const {
    bool right = (k > 0 && align.compare(0, 5, "RIGHT") == 0) || (k <= 0 && align.find("_RIGHT") != std::string::npos);
    if (k == 0 && low < 0 && high > 0) right = align.find("_RIGHT") != std::string::npos && align[0] == 'R';
    return right ? longest - length(k, rows, columns) : 0;
  }
};

struct MatrixDiagPart : Diagonals {
  KERNEL_NAME("MatrixDiagPartV3")
  explicit MatrixDiagPart(Attrs& a) { align = a.string("align"); }
  void run(Call& c) {
    Tensor x = c.in(0), padding = c.in(2);
    Diagonals k = *this;
    k.read_k(c, 1);
    int64_t rows = x.dims[x.rank() - 2], columns = x.dims[x.rank() - 1], longest = k.longest(rows, columns);
    Dims d(x.dims.begin(), x.dims.end() - 2);
    int64_t batch = product(d), number = k.high - k.low + 1;
    if (number > 1) d.push_back(number);
    d.push_back(longest);
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, two_passes(out), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        std::fill_n(out.as<T>(), out.count, *padding.as<T>());
        for (int64_t b = 0; b < batch; b++)
          for (int64_t n = 0; n < number; n++) {
            int64_t diagonal = k.high - n, shift = k.shift(diagonal, longest, rows, columns);
            for (int64_t i = 0; i < k.length(diagonal, rows, columns); i++) {
              int64_t row = i - std::min<int64_t>(diagonal, 0), column = i + std::max<int64_t>(diagonal, 0);
              out.as<T>()[(b * number + n) * longest + shift + i] = x.as<T>()[(b * rows + row) * columns + column];
            }
          }
      });
    });
  }
};

struct MatrixDiag : Diagonals {
  KERNEL_NAME("MatrixDiagV3")
  explicit MatrixDiag(Attrs& a) { align = a.string("align"); }
  void run(Call& c) {
    Tensor x = c.in(0), padding = c.in(4);
    Diagonals k = *this;
    k.read_k(c, 1);
    int64_t number = k.high - k.low + 1, longest = x.dims.back(), rows = c.host_dims(2).at(0),
            columns = c.host_dims(3).at(0);
    Dims d(x.dims.begin(), x.dims.end() - (number > 1 ? 2 : 1));
    int64_t batch = product(d), least_rows = longest - std::min<int64_t>(k.high, 0),
            least_columns = longest + std::max<int64_t>(k.low, 0);
    if (rows < 0 && columns < 0)
      rows = columns = std::max(least_rows, least_columns);
    else if (rows < 0)
      rows = least_rows;
    else if (columns < 0)
      columns = least_columns;
    d.push_back(rows), d.push_back(columns);
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, two_passes(out), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        std::fill_n(out.as<T>(), out.count, *padding.as<T>());
        for (int64_t b = 0; b < batch; b++)
          for (int64_t n = 0; n < number; n++) {
            int64_t diagonal = k.high - n, shift = k.shift(diagonal, longest, rows, columns);
            for (int64_t i = 0; i < k.length(diagonal, rows, columns); i++) {
              int64_t row = i - std::min<int64_t>(diagonal, 0), column = i + std::max<int64_t>(diagonal, 0);
              out.as<T>()[(b * rows + row) * columns + column] = x.as<T>()[(b * number + n) * longest + shift + i];
            }
          }
      });
    });
  }
};

struct MatrixBandPart {
  KERNEL_NAME("MatrixBandPart")
  explicit MatrixBandPart(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out_like(0, x);
    int64_t low = c.host_dims(1).at(0), high = c.host_dims(2).at(0);
    if (!out.count) return;
    int64_t rows = x.dims[x.rank() - 2], columns = x.dims[x.rank() - 1];
    TF_DataType type = TF_TensorType(x.handle);
    c.run(0, two_passes(out), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        for (int64_t i = 0; i < out.count; i++) {
          int64_t row = i / columns % rows, column = i % columns;
          bool keep = (low < 0 || row - column <= low) && (high < 0 || column - row <= high);
          out.as<T>()[i] = keep ? x.as<T>()[i] : T(0);
        }
      });
    });
  }
};

}  // namespace

void register_diagonals() {
  for (auto type : kMovable) {
    reg<MatrixDiagPart>("MatrixDiagPartV3", {{"T", type}}, {"k"});
    reg<MatrixDiag>("MatrixDiagV3", {{"T", type}}, {"k", "num_rows", "num_cols"});
    for (auto i : kIndexTypes)
      reg<MatrixBandPart>("MatrixBandPart", {{"T", type}, {"Tindex", i}}, {"num_lower", "num_upper"});
  }
}

}  // namespace simgpu
