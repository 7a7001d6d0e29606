# SPDX-License-Identifier: Apache-2.0
# An overlay port: it builds the checkout that contains it, without the plug-in for LLVM.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

if("zlib" IN_LIST FEATURES)
    set(DEFT_ZLIB enabled)
else()
    set(DEFT_ZLIB disabled)
endif()

vcpkg_configure_meson(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -Dllvm=disabled
        -Dsites=disabled
        -Dlogs=disabled
        -Dzlib=${DEFT_ZLIB}
        -Dtests=disabled
        -Dpython=disabled
        -Dbench=false
        -Dexamples=false
)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES deft AUTO_CLEAN)

# The files for CMake name paths below one prefix, which vcpkg's layout of debug and release is not. Use pkg-config.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/lib/cmake" "${CURRENT_PACKAGES_DIR}/debug/lib/cmake")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
