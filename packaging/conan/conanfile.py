# SPDX-License-Identifier: Apache-2.0
"""deft as a Conan 2 package. It builds the checkout that contains this file:

    conan create packaging/conan

With the option llvm=True, the plug-in that generates code is built with the LLVM (19 to 21) of the system. Otherwise
kernels are interpreted, until the plug-in of the same version is found at run time."""
import os
import subprocess

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain


class Deft(ConanFile):
    name = "deft"
    version = "0.1.0"
    license = "Apache-2.0"
    description = "Deferred tensors for C: tensor programs are recorded, fused into few kernels, and compiled"
    topics = ("tensor", "jit", "autodiff")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "llvm": [True, False]}
    default_options = {"shared": True, "llvm": False}
    languages = "C"

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("deft runs on Linux")

    def requirements(self):
        self.requires("xxhash/[>=0.8.1 <1]")

    def build_requirements(self):
        self.tool_requires("meson/[>=1.0.1 <2]")

    def layout(self):
        basic_layout(self)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        listed = subprocess.run(["git", "-C", root, "ls-files"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for path in listed.splitlines():
            if not path.startswith(("bench/", "packaging/")):
                copy(self, path, root, self.export_sources_folder)

    def generate(self):
        PkgConfigDeps(self).generate()
        toolchain = MesonToolchain(self)
        for option in ("sites", "logs", "zlib", "tests", "python"):
            toolchain.project_options[option] = "disabled"
        for option in ("bench", "examples"):
            toolchain.project_options[option] = False
        toolchain.project_options["llvm"] = "enabled" if self.options.llvm else "disabled"
        # Only the header of xxHash is used, which no pkg-config file is asked for.
        for dependency in self.dependencies.host.values():
            toolchain.extra_cflags += ["-I" + path for path in dependency.cpp_info.aggregated_components().includedirs]
        toolchain.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("pkg_config_name", "deft")
        self.cpp_info.set_property("cmake_file_name", "deft")
        self.cpp_info.set_property("cmake_target_name", "deft::deft")
        self.cpp_info.libs = ["deft"]
        self.cpp_info.system_libs = ["m", "pthread", "dl"]
