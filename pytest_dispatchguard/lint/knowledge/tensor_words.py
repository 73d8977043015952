"""The words by which the scout tells tensors from other values without knowing a type."""

from __future__ import annotations

import re

TENSOR_METHODS = frozenset(
    """unsqueeze unsqueeze_ permute detach detach_ masked_fill masked_fill_ masked_scatter
    masked_select numel dim contiguous expand new_zeros new_ones new_tensor new_full new_empty
    type_as index_select scatter_ softmax log_softmax sigmoid sigmoid_ logsumexp chunk unbind unfold
    clamp clamp_ clamp_min clamp_max view_as reshape_as expand_as is_floating_point data_ptr
    element_size stride add_ mul_ sub_ div_ copy_ fill_ repeat_interleave unflatten index_add
    index_add_ index_copy_ index_fill_ bmm matmul addmm baddbmm index_put_ scatter_add_
    scatter_reduce scatter_reduce_ relu_ tanh_ exp_ log_ sqrt_ rsqrt rsqrt_ neg_ normal_ uniform_
    bernoulli_ masked_scatter_ addcmul_ addcdiv_ lerp_ pin_memory is_contiguous tril_ triu_ movedim
    as_strided broadcast_to narrow cumsum_ isnan isinf erfinv_ nan_to_num is_complex storage_offset
    untyped_storage register_hook retain_grad amax amin logical_not logical_and logical_or
    bitwise_not view size new_empty_strided mT t backward""".split()
)
"""Methods that tensors have and neither NumPy arrays, modules, strings, nor the usual helpers
do."""

ARRAY_METHODS = frozenset(
    "max min mean std var sum prod any all argmax argmin cumsum argsort squeeze transpose".split()
)
"""Methods that NumPy arrays have, too, but neither numbers, strings, lists, dicts nor modules."""

NO_TENSOR_METHODS = frozenset({"astype", "copy", "tobytes"})
"""Methods that arrays, dicts and lists have, but no tensors: what such hold may be tensors all the same."""

TENSOR_ATTRIBUTES = frozenset({"is_cuda", "grad_fn", "is_leaf"})
"""Attributes that only tensors have."""

TENSOR_PAIR = frozenset({"device", "shape"})
"""Attributes that others have too, but hardly both: a module has no shape, and an array was long without a
device."""

TENSOR_NAMES = re.compile(r"(?:\w+_)?cu_?seq_?lens?(?:_(?!cpu|host|list|np)\w+)?")
"""Names of tensors, whatever is known of them: kernels take the beginnings of packed sequences so."""

NOT_RECEIVERS = (
    "td",
    "tensordict",
    "mesh",
    "group",
    "pg",
    "shape",
    "storage",
    "size",
    "dist",
    "accelerator",
    "fabric",
)
"""Words in a name that stands for something with some of the methods above, but no tensor."""

TORCH_OPS = frozenset(
    """abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv amax amin aminmax angle argmax
    argmin argsort as_strided asin asinh atan atan2 atanh avg_pool1d baddbmm bernoulli bincount
    bitwise_not bmm bucketize ceil chunk clamp clamp_max clamp_min clip clone conj conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d cos cosh count_nonzero cross cummax
    cummin cumprod cumsum deg2rad diag diag_embed diagonal diff digamma div dot einsum_ eq equal erf
    erfc erfinv exp exp2 expm1 flatten flip fliplr flipud floor floor_divide fmod frac full_like
    gather ge gt gumbel_softmax heaviside histc hypot imag index_add index_copy index_fill
    index_select isclose isfinite isinf isnan kthvalue le lerp lgamma log log10 log1p log2
    log_softmax logaddexp logdet logical_and logical_not logical_or logical_xor logit logsumexp lt
    masked_fill masked_select matmul matrix_exp median mm mode moveaxis movedim msort mul
    multinomial mv nan_to_num nanmean nanmedian nansum narrow ne neg nonzero norm normalize
    ones_like outer permute pinverse polar quantile rad2deg rand_like randn_like randint_like
    empty_like real reciprocal relu remainder renorm repeat_interleave roll rot90 round rsqrt
    scatter scatter_add searchsorted select sgn sigmoid sign signbit sin sinc sinh softmax sort sqrt
    square squeeze std std_mean sub sum svd swapaxes swapdims t take take_along_dim tan tanh
    tensor_split tile topk trace transpose trapz tril triu trunc unbind unflatten unique
    unique_consecutive unsqueeze var var_mean vdot view_as_complex view_as_real zeros_like linear
    bilinear embedding dropout layer_norm batch_norm group_norm instance_norm rms_norm
    scaled_dot_product_attention cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss
    kl_div binary_cross_entropy binary_cross_entropy_with_logits gelu silu mish elu selu celu
    leaky_relu prelu rrelu glu softplus softmin softsign tanhshrink hardtanh hardswish hardsigmoid
    logsigmoid threshold max_pool1d max_pool2d max_pool3d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d interpolate
    upsample grid_sample affine_grid pixel_shuffle pixel_unshuffle pad unfold fold one_hot
    cosine_similarity pairwise_distance pdist softmin relu6 mean prod min max all any stft istft
    multi_margin_loss triplet_margin_loss where argwhere cdist logcumsumexp""".split()
)
"""Functions of torch and torch.nn.functional whose first argument has to be a tensor."""

TYPE_TESTS = frozenset(
    """isinstance is_tensor callable hasattr issubclass is_torch_tensor is_numpy_array is_array type
    is_tensor_collection as_tensor tensor from_numpy convert_to_tensor asarray""".split()
)
"""Calls that ask, or change, what their argument is: after them its uses prove nothing of the
argument."""

HOST_FUNCTIONS = frozenset(
    """len isinstance hasattr callable issubclass getattr bool int float str repr type id range set
    dict list tuple frozenset sorted format vars dir locals globals input open ord chr hex oct bin
    hash iter any all signature unpack_dual""".split()
)
"""Functions whose result is a Python value whatever they are given."""

HOST_METHODS = frozenset(
    """keys items shape startswith endswith is_floating_point is_complex dim size numel ndimension
    is_contiguous is_tensor is_grad_enabled is_autocast_enabled is_available is_scripting is_tracing
    is_compiling is_inference_mode_enabled is_inference device_count get_rank get_world_size
    signature has_torch_function has_torch_function_unary has_torch_function_variadic find strip
    lstrip rstrip lower upper join isdigit group fullmatch exists is_file is_dir perf_counter time
    monotonic get_device element_size data_ptr stride named_parameters named_modules named_buffers
    named_children parameters modules buffers children finfo iinfo unpack_dual nelement can_cast
    broadcast_shapes get_default_dtype format item tolist""".split()
)
"""Methods, and functions of modules, whose result is a Python value."""

CONTAINER_METHODS = frozenset("pop get values items copy __getitem__".split())
"""Methods of lists and dicts that may give a tensor."""

HOST_PREFIXES = (
    "is_", "has_", "should_", "can_", "_is_", "_has_", "_should_", "use_", "supports_", "needs_",
    "isinstance_", "_supports", "_use_", "_can_", "any_symbolic",
)  # fmt: skip

SEQUENCE_CALLS = frozenset(
    """chunk split unbind size max min topk sort meshgrid shape items keys values var_mean std_mean
    aminmax zip enumerate map svd qr eigh slogdet lu lstsq tensor_split hsplit vsplit
    broadcast_tensors pop popitem partition rpartition divmod median mode kthvalue cummax cummin
    shape unpack_dual frexp get_dimensions get_image_size random_split pack_padded_sequence
    pad_packed_sequence groupby product""".split()
)
"""Calls whose result is iterated or unpacked as Python sequence."""

READABLE_TENSOR_ATTRIBUTES = frozenset(
    "grad data T mT H mH real imag values indices main_grad _base".split()
)
"""Attributes of tensors that are tensors."""

NEVER_TIMED = re.compile(r"""["'](?:Meta|(?:Autocast|Sparse|Quantized)?CPU)["']""")
"""What torch calls the backends on which nobody waits for an accelerator."""

REGISTERING = frozenset({"impl", "register_autograd", "register_kernel"})
"""Calls that torch is given the name of an operation with, and functions that do its work:
`lib.impl("scale", scale, "CUDA")`."""

ITERATING_CALLS = frozenset(
    "list tuple set sorted enumerate zip sum max min any all map reversed frozenset".split()
)
"""Builtins that iterate their arguments."""

BUILTINS = frozenset(
    """abs all any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile
    complex delattr dict dir divmod enumerate eval exec filter float format frozenset getattr
    globals hasattr hash help hex id input int isinstance issubclass iter len list locals map max
    memoryview min next object oct open ord pow print property range repr reversed round set setattr
    slice sorted staticmethod str sum super tuple type vars zip __import__ NotImplemented Ellipsis
    Exception ValueError TypeError RuntimeError KeyError NotImplementedError AttributeError
    IndexError ImportError StopIteration OSError AssertionError DeprecationWarning UserWarning
    FutureWarning Warning""".split()
)

EXTERNAL = frozenset(
    """torch numpy math os sys re warnings typing functools itertools collections contextlib logging
    jax tensorflow scipy einops copy inspect json time random abc dataclasses enum types string
    operator pathlib io pickle threading typing_extensions PIL requests h5py pandas matplotlib
    sklearn tqdm packaging huggingface_hub safetensors triton torchvision torchaudio torch_xla
    torch_npu ml_dtypes optree tree cv2 socket subprocess shutil tempfile weakref gc traceback
    datetime uuid hashlib struct ctypes platform rich yaml""".split()
)
"""Packages whose functions lead to none of the project's, unless they are the project."""

HOST_PACKAGES = EXTERNAL - frozenset(
    "torch torchvision torchaudio torch_xla torch_npu triton einops optree tree".split()
)
"""Packages whose functions give no tensors."""

HOOKS = frozenset(
    """register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_backward_hook register_hook
    register_post_accumulate_grad_hook saved_tensors_hooks register_comm_hook queue_callback
    register_multi_grad_hook register_module_forward_hook register_module_forward_pre_hook
    register_module_full_backward_hook register_step_pre_hook register_step_post_hook
    register_optimizer_step_pre_hook register_optimizer_step_post_hook""".split()
)
"""Calls whose argument torch calls back, once a forward or backward."""
