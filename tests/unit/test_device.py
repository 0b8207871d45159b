"""What a process may use of a machine, what a model needs of it, and which GPU lies idle."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from support.models_on_disk import write_gguf

from ssr_local import device
from ssr_local.accelerator import idle_gpus, reinstall_command
from ssr_local.device import Machine, Memory, cpu_quota, memory, physical_cores, this_machine
from ssr_local.footprint import (
    Fit,
    fits,
    kv_bytes_per_token,
    largest_context,
    memory_needed,
    state_bytes,
)
from ssr_local.gguf import read_header
from ssr_local.llama import backends
from ssr_local.llama.backends import Device, DeviceKind
from ssr_local.settings import KVType

GB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    """A made-up /proc and /sys."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_allowed_cpus", lambda: set(range(8)))
    monkeypatch.setattr(device, "_performance_cores", lambda: 0)


def topology(cores: int, threads: int) -> dict[str, str]:
    return {
        f"sys/devices/system/cpu/cpu{core * threads + thread}/topology/{name}": text
        for core in range(cores)
        for thread in range(threads)
        for name, text in (("core_id", str(core)), ("physical_package_id", "0"))
    }


@pytest.mark.usefixtures("eight_cpus")
class TestCores:
    def test_hyper_threads_do_not_count(self, tmp_path: Path) -> None:
        assert physical_cores(tree(tmp_path, topology(cores=4, threads=2))) == 4

    def test_affinity_limits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device, "_allowed_cpus", lambda: {0, 1, 2})
        assert physical_cores(tree(tmp_path, topology(cores=4, threads=2))) == 2

    @pytest.mark.parametrize(
        ("cpu_max", "cores"),
        [("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8)],
    )
    def test_a_container_s_quota_limits(self, tmp_path: Path, cpu_max: str, cores: int) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max}
        assert physical_cores(tree(tmp_path, files | topology(cores=8, threads=1))) == cores

    def test_the_tightest_ancestor_counts(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/cpu.max": "300000 100000",
            "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        }
        assert cpu_quota(tree(tmp_path, files)) == 3

    def test_cgroup_v1(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        }
        assert cpu_quota(tree(tmp_path, files)) == 2.5

    def test_v1_s_minus_one_is_no_limit(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "2:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        }
        assert cpu_quota(tree(tmp_path, files)) is None

    def test_without_linux_s_files_there_is_still_an_answer(self, tmp_path: Path) -> None:
        assert 1 <= physical_cores(tmp_path) <= 8


class TestMemory:
    def test_a_container_s_limit_counts(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": str(GB),
            "sys/fs/cgroup/memory.current": str(GB // 2),
        }
        assert memory(tree(tmp_path, files)) == Memory(GB, GB // 2)

    def test_the_page_cache_of_a_container_counts_as_free(self, tmp_path: Path) -> None:
        """A model file that was read once must not make the next load look impossible."""
        files = {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": str(GB),
            "sys/fs/cgroup/memory.current": str(GB),
            "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GB // 4}\nactive_file {GB // 4}",
        }
        assert memory(tree(tmp_path, files)).available == GB // 2

    def test_no_limit_is_the_machine(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max"}
        assert memory(tree(tmp_path, files)).total == psutil.virtual_memory().total

    def test_v1_s_huge_number_is_no_limit(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        }
        assert memory(tree(tmp_path, files)).total == psutil.virtual_memory().total


def gpu(free: int, total: int, kind: DeviceKind = DeviceKind.GPU, name: str = "CUDA0") -> Device:
    return Device(name, "a card", kind, free, total)


@pytest.mark.parametrize(
    ("ram", "gpus", "needed", "fit"),
    [
        (16 * GB, (), 4 * GB, Fit.MEMORY),
        (16 * GB, (), 15 * GB, Fit.TOO_LARGE),  # something must be left for the rest
        (16 * GB, (gpu(8 * GB, 8 * GB),), 4 * GB, Fit.GPU),
        (16 * GB, (gpu(8 * GB, 8 * GB),), 10 * GB, Fit.MEMORY),
        (16 * GB, (gpu(8 * GB, 8 * GB),), 30 * GB, Fit.TOO_LARGE),
        (16 * GB, (gpu(12 * GB, 12 * GB, DeviceKind.INTEGRATED),), 20 * GB, Fit.TOO_LARGE),
        (64 * GB, (gpu(8 * GB, 8 * GB), gpu(8 * GB, 8 * GB)), 12 * GB, Fit.GPU),
    ],
)
def test_where_a_model_fits(ram: int, gpus: tuple[Device, ...], needed: int, fit: Fit) -> None:
    assert fits(needed, Machine(4, Memory(ram, ram), gpus)) is fit


def test_memory_in_use_counts_now_but_not_in_general() -> None:
    busy = Machine(4, Memory(16 * GB, 2 * GB), ())
    assert fits(4 * GB, busy) is Fit.TOO_LARGE
    assert fits(4 * GB, busy, now=False) is Fit.MEMORY


def test_the_kv_cache_of_plain_attention(tmp_path: Path) -> None:
    shapes = {f"blk.{i}.attn_{which}.weight": (16, 8) for i in (0, 1) for which in "kv"}
    header = read_header(write_gguf(tmp_path / "m.gguf", tensors=shapes))
    assert kv_bytes_per_token(header) == 2 * (8 + 8) * 2
    assert kv_bytes_per_token(header, KVType.Q8_0) == 34
    assert state_bytes(header) == 0


def test_only_attention_layers_of_a_hybrid_have_a_kv_cache(tmp_path: Path) -> None:
    shapes = {
        "blk.0.attn_qkv.weight": (16, 40),
        "blk.0.ssm_conv1d.weight": (4, 40),
        "blk.1.attn_k.weight": (16, 8),
        "blk.1.attn_v.weight": (16, 8),
    }
    sizes = {"conv_kernel": 4, "inner_size": 32, "state_size": 8, "group_count": 1}
    numbers = {f"qwen35.ssm.{key}": value for key, value in sizes.items()}
    numbers = {key.removeprefix("qwen35."): value for key, value in numbers.items()}
    path = write_gguf(tmp_path / "m.gguf", arch="qwen35", tensors=shapes, numbers=numbers)
    header = read_header(path)
    assert kv_bytes_per_token(header) == (8 + 8) * 2
    assert state_bytes(header) == 4 * (32 * 8 + 3 * (32 + 2 * 8))


def test_layers_that_share_a_cache_and_values_that_are_keys(tmp_path: Path) -> None:
    """Gemma 4: the last layers use an earlier layer's cache, and some layers have no values."""
    shapes = {f"blk.{layer}.attn_k.weight": (16, 8) for layer in (0, 1)}
    numbers = {"attention.shared_kv_layers": 1}
    path = write_gguf(tmp_path / "m.gguf", arch="gemma4", tensors=shapes, numbers=numbers)
    assert kv_bytes_per_token(read_header(path)) == (8 + 8) * 2


def test_fused_projections_are_sized_by_head_counts(tmp_path: Path) -> None:
    shapes = {"blk.0.attn_qkv.weight": (16, 32), "blk.1.attn_qkv.weight": (16, 32)}
    header = read_header(write_gguf(tmp_path / "m.gguf", tensors=shapes))
    assert kv_bytes_per_token(header) == 2 * 2 * (4 + 4) * 2


def test_needs_grow_with_context_and_slots(tmp_path: Path) -> None:
    shapes = {f"blk.0.attn_{which}.weight": (16, 8) for which in "kv"}
    header = read_header(write_gguf(tmp_path / "m.gguf", tensors=shapes))
    one = memory_needed(header, 1000, draft_cells=0)
    assert one.kv == 1000 * 32
    assert memory_needed(header, 1000, draft_cells=24, slots=3).kv == 3 * 1024 * 32
    assert one.weights == header.file_size
    assert one.total == one.weights + one.kv + one.state + one.compute


def test_the_largest_context_that_fits_is_found(tmp_path: Path) -> None:
    shapes = {f"blk.0.attn_{which}.weight": (16, 8192) for which in "kv"}
    path = write_gguf(tmp_path / "m.gguf", tensors=shapes, context=1 << 17)
    header = read_header(path)
    room = memory_needed(header, 4096).total / 0.92
    machine = Machine(2, Memory(1 << 40, int(room) + 4096), ())
    assert largest_context(header, machine) == 4096


class TestIdleGPUs:
    @staticmethod
    def nvidia(command: list[str]) -> str | None:
        return "NVIDIA RTX 4090, 24564\n" if command[0] == "nvidia-smi" else None

    def test_an_nvidia_card_beside_a_cpu_build_is_pointed_out(self, tmp_path: Path) -> None:
        (found,) = idle_gpus(
            ["CPU"], "0.3.36", run=self.nvidia, root=tmp_path, system="linux", machine="x86_64"
        )
        assert found.name == "NVIDIA RTX 4090 (24564 MiB)"
        assert found.reinstall == (
            'CMAKE_ARGS="-DGGML_CUDA=on" '
            "pip install --force-reinstall --no-cache-dir llama-cpp-python==0.3.36"
        )

    def test_a_cuda_build_is_left_alone(self, tmp_path: Path) -> None:
        assert not idle_gpus(
            ["CUDA", "CPU"], "1", run=self.nvidia, root=tmp_path, system="linux", machine="x86_64"
        )

    def test_an_amd_card(self, tmp_path: Path) -> None:
        root = tree(tmp_path, {"dev/kfd": ""})
        (found,) = idle_gpus(
            ["CPU"], "1", run=lambda _: None, root=root, system="linux", machine="x86_64"
        )
        assert "GGML_HIP" in found.reinstall

    def test_apple_silicon_without_metal(self, tmp_path: Path) -> None:
        (found,) = idle_gpus(
            ["CPU"], "1", run=lambda _: None, root=tmp_path, system="darwin", machine="arm64"
        )
        assert "GGML_METAL" in found.reinstall

    def test_other_cards_are_found_by_vulkan_and_software_renderers_are_not(
        self, tmp_path: Path
    ) -> None:
        def run(command: list[str]) -> str | None:
            text = "deviceName = llvmpipe (LLVM)\n\tdeviceName = Intel Arc A770\n"
            return text if command[0] == "vulkaninfo" else None

        (found,) = idle_gpus(["CPU"], "1", run=run, root=tmp_path, system="linux", machine="x86_64")
        assert found.name == "Intel Arc A770"

    def test_no_gpu_no_advice(self, tmp_path: Path) -> None:
        assert not idle_gpus(
            ["CPU"], "1", run=lambda _: None, root=tmp_path, system="linux", machine="x86_64"
        )

    def test_windows_has_its_own_way_to_set_a_variable(self) -> None:
        assert reinstall_command("-DX=on", "1", system="win32").startswith("$env:CMAKE_ARGS=")


def test_this_build_has_a_cpu_backend_and_device() -> None:
    assert "CPU" in [backend.name for backend in backends.backends()]
    cpus = [found for found in backends.devices() if found.kind is DeviceKind.CPU]
    assert cpus
    assert cpus[0].memory_total > 0


def test_system_info_is_read_into_features() -> None:
    assert backends.system_info().startswith(("CPU", "Metal", "CUDA"))
    assert all("=" not in name for name in backends.cpu_features())


def test_this_machine_has_cores_and_memory() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert 0 < machine.memory.available <= machine.memory.total
