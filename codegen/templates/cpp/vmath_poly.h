// Polynomials of vmath.h, lowest power first. Written by tools/fit_vmath.py; do not edit.
#ifndef HARDTACK_TEMPLATES_VMATH_POLY_H
#define HARDTACK_TEMPLATES_VMATH_POLY_H

namespace ht::poly {

template <class T>
struct Tables;

template <>
struct Tables<float> {
  // (e^r - 1 - r) / r^2, |r| <= log(2) / 2; weighted error 2^-26.1
  static constexpr float exp_q[] = {
      0x1.0000000000000p-1f,
      0x1.5554b00000000p-3f,
      0x1.5554da0000000p-5f,
      0x1.1227c00000000p-7f,
      0x1.6d5d5a0000000p-10f,
  };
  // (2^r - 1) / r, |r| <= 1/2; weighted error 2^-28.2
  static constexpr float exp2_q[] = {
      0x1.62e4300000000p-1f,
      0x1.ebfbe00000000p-3f,
      0x1.c6af760000000p-5f,
      0x1.3b2a3c0000000p-7f,
      0x1.5f0bec0000000p-10f,
      0x1.44322c0000000p-13f,
  };
  // the same, for what is rounded to bfloat16; weighted error 2^-18.5
  static constexpr float exp2_short[] = {
      0x1.62e0c80000000p-1f,
      0x1.ebf8cc0000000p-3f,
      0x1.ca1cd60000000p-5f,
      0x1.3d31bc0000000p-7f,
  };
  // (log(1 + f) - f + f^2 / 2) / f^3, 1 + f in [sqrt(1/2), sqrt(2)]; weighted error 2^-30.4
  static constexpr float log_p[] = {
      0x1.5555460000000p-2f,
      -0x1.ffffee0000000p-3f,
      0x1.99a5420000000p-3f,
      -0x1.5562de0000000p-3f,
      0x1.2333040000000p-3f,
      -0x1.fb44460000000p-4f,
      0x1.e64e0a0000000p-4f,
      -0x1.e2e1d60000000p-4f,
      0x1.1b3e740000000p-4f,
  };
  // (sin(r) - r) / r^3 by z = r^2, |r| <= pi / 4; weighted error 2^-27.9
  static constexpr float sin_p[] = {
      -0x1.5555460000000p-3f,
      0x1.11076e0000000p-7f,
      -0x1.994e340000000p-13f,
  };
  // (cos(r) - 1 + r^2 / 2) / r^4 by z = r^2, |r| <= pi / 4; weighted error 2^-33.1
  static constexpr float cos_q[] = {
      0x1.55554a0000000p-5f,
      -0x1.6c0c1a0000000p-10f,
      0x1.99e0e60000000p-16f,
  };
  // (asin(x) - x) / x^3 by z = x^2, |x| <= 1/2; weighted error 2^-27.6
  static constexpr float asin_p[] = {
      0x1.5555ca0000000p-3f,
      0x1.3301640000000p-4f,
      0x1.748b300000000p-5f,
      0x1.8ba7c40000000p-6f,
      0x1.59da7a0000000p-5f,
  };
  // (atan(x) - x) / x^3 by z = x^2, |x| <= 1; weighted error 2^-28.7
  static constexpr float atan_p[] = {
      -0x1.5555400000000p-2f,
      0x1.9992680000000p-3f,
      -0x1.2426580000000p-3f,
      0x1.c0cbb80000000p-4f,
      -0x1.58c7ee0000000p-4f,
      0x1.dcc68c0000000p-5f,
      -0x1.0165be0000000p-5f,
      0x1.69edc80000000p-7f,
      -0x1.ddd81e0000000p-10f,
  };
  // (tanh(x) - x) / x^3 by z = x^2, |x| <= 0.6; weighted error 2^-33.0
  static constexpr float tanh_p[] = {
      -0x1.5555540000000p-2f,
      0x1.1110860000000p-3f,
      -0x1.b9f5840000000p-5f,
      0x1.63dec60000000p-6f,
      -0x1.0db59c0000000p-7f,
      0x1.1fd3a40000000p-9f,
  };
  // erf(x) / x - 1 by z = x^2, |x| <= 1; weighted error 2^-29.6
  static constexpr float erf_small[] = {
      0x1.06eba80000000p-3f,
      -0x1.8127400000000p-2f,
      0x1.ce2d500000000p-4f,
      -0x1.b7fe900000000p-6f,
      0x1.542e100000000p-8f,
      -0x1.a50b0e0000000p-11f,
      0x1.4c344e0000000p-14f,
  };
  // erfc(y) by t = y - 5/2, 1 <= y <= 4; weighted error 2^-30.6
  static constexpr float erf_large[] = {
      0x1.aab86e0000000p-12f,
      -0x1.1d82e40000000p-9f,
      0x1.64e3880000000p-8f,
      -0x1.119eb00000000p-7f,
      0x1.1a8b840000000p-7f,
      -0x1.90daf40000000p-8f,
      0x1.6eafca0000000p-9f,
      -0x1.1d84ac0000000p-11f,
      -0x1.0f5b160000000p-12f,
      0x1.09cb6c0000000p-12f,
      -0x1.5401fe0000000p-14f,
      -0x1.0574c40000000p-17f,
      0x1.0786b20000000p-16f,
      -0x1.cf41200000000p-19f,
      -0x1.dd114c0000000p-21f,
      0x1.77b71a0000000p-22f,
  };
  // (y + 2) e^(y^2) erfc(y) by t = (y - 2) / (y + 2), 1/2 <= y <= 10.5; weighted error 2^-25.8
  static constexpr float erfcx[] = {
      0x1.0586720000000p+0f,
      -0x1.5fd3860000000p-1f,
      0x1.1e2d720000000p-2f,
      -0x1.2a89f00000000p-5f,
      -0x1.5fe7de0000000p-6f,
      0x1.a8ec660000000p-8f,
      0x1.7b91660000000p-9f,
      -0x1.c044ca0000000p-11f,
      -0x1.724fa00000000p-13f,
      0x1.1a88940000000p-14f,
      -0x1.3097660000000p-12f,
  };
  // erfinv(x) / x by v = w - 5/2, w = -log(1 - x^2) <= 5; weighted error 2^-24.6
  static constexpr float erfinv_central[] = {
      0x1.805c5e0000000p+0f,
      0x1.f91e8c0000000p-3f,
      -0x1.11c9860000000p-8f,
      -0x1.4868d20000000p-10f,
      0x1.ca5dee0000000p-13f,
      -0x1.4aed7c0000000p-18f,
      -0x1.d86dea0000000p-19f,
      0x1.eba7000000000p-22f,
      0x1.dde3c20000000p-26f,
      -0x1.17227a0000000p-27f,
  };
  // erfinv(x) / x by s = sqrt(w) - 3, w = -log(1 - x^2) in [5, 17]; weighted error 2^-25.9
  static constexpr float erfinv_tail[] = {
      0x1.6a9efc0000000p+1f,
      0x1.006dc40000000p+0f,
      0x1.3576ba0000000p-7f,
      -0x1.f46b480000000p-8f,
      0x1.755bec0000000p-8f,
      -0x1.d8abc20000000p-9f,
      0x1.7e90500000000p-10f,
      -0x1.2de4de0000000p-15f,
      -0x1.2f2e000000000p-12f,
      0x1.9e53a60000000p-14f,
  };
};

template <>
struct Tables<double> {
  // (e^r - 1 - r) / r^2, |r| <= log(2) / 2; weighted error 2^-60.8
  static constexpr double exp_q[] = {
      0x1.0000000000000p-1,
      0x1.5555555555559p-3,
      0x1.555555555555ap-5,
      0x1.111111110f67ep-7,
      0x1.6c16c16c14434p-10,
      0x1.a01a01affb03dp-13,
      0x1.a01a01b0c409fp-16,
      0x1.71ddf816df9d9p-19,
      0x1.27e4c58174437p-22,
      0x1.af5f32033addcp-26,
      0x1.1f95961498f6ap-29,
  };
  // (2^r - 1) / r, |r| <= 1/2; weighted error 2^-56.0
  static constexpr double exp2_q[] = {
      0x1.62e42fefa39efp-1,
      0x1.ebfbdff82c58fp-3,
      0x1.c6b08d704a0c0p-5,
      0x1.3b2ab6fba4e7dp-7,
      0x1.5d87fe78a6738p-10,
      0x1.430912f869f08p-13,
      0x1.ffcbfc5887113p-17,
      0x1.62c022495d838p-20,
      0x1.b5253d4b9f2b0p-24,
      0x1.e4cef76bf3b12p-28,
      0x1.e8ca6d919cb5ap-32,
      0x1.c4c6770f90e97p-36,
      0x1.82423a1638df1p-40,
  };
  // (log(1 + f) - f + f^2 / 2) / f^3, 1 + f in [sqrt(1/2), sqrt(2)]; weighted error 2^-57.6
  static constexpr double log_p[] = {
      0x1.555555555556ep-2,
      -0x1.ffffffffffeeep-3,
      0x1.99999999944fep-3,
      -0x1.5555555563973p-3,
      0x1.2492492797067p-3,
      -0x1.fffffff9936dfp-4,
      0x1.c71c70191634bp-4,
      -0x1.9999996f907fbp-4,
      0x1.745d5a7741faap-4,
      -0x1.555599c44d16bp-4,
      0x1.3b0d786703eb8p-4,
      -0x1.2486ebf4778adp-4,
      0x1.1167ad5c53281p-4,
      -0x1.00e73696a8daep-4,
      0x1.dced46f97fc3bp-5,
      -0x1.b37817a97c6f2p-5,
      0x1.b91f0e8246bbfp-5,
      -0x1.01778547ef111p-4,
      0x1.da15e5ff99565p-5,
      -0x1.9921a54205bedp-6,
  };
  // (sin(r) - r) / r^3 by z = r^2, |r| <= pi / 4; weighted error 2^-57.2
  static constexpr double sin_p[] = {
      -0x1.5555555555555p-3,
      0x1.111111111110bp-7,
      -0x1.a01a01a0189d4p-13,
      0x1.71de3a5323129p-19,
      -0x1.ae64527aa85e8p-26,
      0x1.61207f8e144d5p-33,
      -0x1.aa9ba591cf8cdp-41,
  };
  // (cos(r) - 1 + r^2 / 2) / r^4 by z = r^2, |r| <= pi / 4; weighted error 2^-59.9
  static constexpr double cos_q[] = {
      0x1.5555555555555p-5,
      -0x1.6c16c16c16c10p-10,
      0x1.a01a01a018d01p-16,
      -0x1.27e4fb75edaafp-22,
      0x1.1eed8c91b795dp-29,
      -0x1.939323b8faf5fp-37,
      0x1.aabc57ab6554ap-45,
  };
  // (asin(x) - x) / x^3 by z = x^2, |x| <= 1/2; weighted error 2^-59.1
  static constexpr double asin_p[] = {
      0x1.5555555555578p-3,
      0x1.333333332defap-4,
      0x1.6db6db722c721p-5,
      0x1.f1c71a8b462d5p-6,
      0x1.6e8bdfeef89d8p-6,
      0x1.1c49dd7afbc85p-6,
      0x1.ca214fad9ea8ep-7,
      0x1.75773865b21adp-7,
      0x1.618c6cf35bd17p-7,
      0x1.e143b746446c0p-9,
      0x1.65089a6b0cb02p-6,
      -0x1.59ff2441aab78p-6,
      0x1.0be6e60ffa6e6p-5,
  };
  // (atan(x) - x) / x^3 by z = x^2, |x| <= 1; weighted error 2^-57.5
  static constexpr double atan_p[] = {
      -0x1.5555555555555p-2,
      0x1.9999999999922p-3,
      -0x1.249249248fcafp-3,
      0x1.c71c71c642980p-4,
      -0x1.745d172f46d5fp-4,
      0x1.3b13afacc04f1p-4,
      -0x1.1110fd8db4dbbp-4,
      0x1.e1e07743db673p-5,
      -0x1.af1e5be994aa8p-5,
      0x1.85e06df26e4d0p-5,
      -0x1.63347a1824562p-5,
      0x1.443493a07d446p-5,
      -0x1.2535132edb77cp-5,
      0x1.01b7412065a40p-5,
      -0x1.ac0d95409cfd2p-6,
      0x1.447b63dcdbee7p-6,
      -0x1.b08c86c629271p-7,
      0x1.e7bb9e904fc83p-8,
      -0x1.be32e31f9904dp-9,
      0x1.3b015c0ff0068p-10,
      -0x1.3fde90b2a7a56p-12,
      0x1.9dd140b49945dp-15,
      -0x1.fe98f8b5f6c91p-19,
  };
  // (tanh(x) - x) / x^3 by z = x^2, |x| <= 0.6; weighted error 2^-57.0
  static constexpr double tanh_p[] = {
      -0x1.5555555555555p-2,
      0x1.1111111111110p-3,
      -0x1.ba1ba1ba1b883p-5,
      0x1.664f4882b8159p-6,
      -0x1.226e355c8c8ebp-7,
      0x1.d6d3d05f95722p-9,
      -0x1.7da358525a9b4p-10,
      0x1.35575bca2168ap-11,
      -0x1.f56a9934b8c74p-13,
      0x1.95d99c7ad5a2fp-14,
      -0x1.45724f77132e0p-15,
      0x1.f1f6979adfbf3p-17,
      -0x1.414a26c16c1e3p-18,
      0x1.f1fe41eef82acp-21,
  };
  // erfinv(x) / x by v = w - 5/2, w = -log(1 - x^2) <= 5: a first guess; weighted error 2^-23.3
  static constexpr double erfinv_central[] = {
      0x1.805c5e2424717p+0,
      0x1.f91ec866b4e75p-3,
      -0x1.11ca03a24bba6p-8,
      -0x1.48a8efa637b6bp-10,
      0x1.ca661e5b4738cp-13,
      -0x1.2644ef7dbbd1fp-18,
      -0x1.d8b4072446299p-19,
      0x1.6fb6fd65ab3a5p-22,
      0x1.de67a643f8931p-26,
  };
  // erfinv(x) / x by s = sqrt(w) - 4, w = -log(1 - x^2) in [5, 37]: a first guess; weighted error 2^-21.5
  static constexpr double erfinv_tail[] = {
      0x1.eb7e082b6125dp+1,
      0x1.026ea4cce864bp+0,
      0x1.4aa2c4a4f7606p-10,
      -0x1.dd3d8b06f3173p-11,
      0x1.51cbd8a3f6021p-12,
      -0x1.cd1e607870c84p-15,
      0x1.789e3f4bf272ep-15,
      -0x1.25872230b7426p-14,
      0x1.fb182f09597f0p-16,
      -0x1.12ba98229c7a4p-20,
      -0x1.2faa7265bc1e0p-20,
  };
  // (2 atanh(s) - 2 s - 2/3 s^3) / s^5 by z = s^2, |s| <= 0.1716; weighted error 2^-55.3
  static constexpr double atanh_tail[] = {
      0x1.999999999999ap-2,
      0x1.2492492492491p-2,
      0x1.c71c71c71cff2p-3,
      0x1.745d174511aa6p-3,
      0x1.3b13b1bd5ad9fp-3,
      0x1.1110df6aeeb58p-3,
      0x1.e1f80f9b1d411p-4,
      0x1.ac48c729b9d26p-4,
      0x1.b8e36e97aeb78p-4,
  };
  // log(gamma(3/2 + d)), |d| <= 1/4; weighted error 2^-53.6
  static constexpr double lgamma_mid[] = {
      -0x1.eeb95b094c191p-4,
      0x1.2aed059bd608bp-5,
      0x1.de9e64df22ef3p-2,
      -0x1.1ae55b18072e7p-3,
      0x1.e0f840dad6520p-5,
      -0x1.da59d53715dd7p-6,
      0x1.f9ca39da265bep-7,
      -0x1.1a8ba51949538p-7,
      0x1.456f1b28816bdp-8,
      -0x1.7edb602eaaef2p-9,
      0x1.c97320e7a6f6ep-10,
      -0x1.1491d8dea9f9cp-10,
      0x1.5188646423aadp-11,
      -0x1.9cfad75a0b48fp-12,
      0x1.fea055a6f4d42p-13,
      -0x1.63321313e3967p-13,
      0x1.bf28d187c9f2dp-14,
  };
  // log2(m) / s by z = s^2, s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)]; weighted error 2^-50.6
  static constexpr double pow_log2[] = {
      0x1.71547652b82ffp+1,
      0x1.ec709dc39c986p-1,
      0x1.2776c516b30d9p-1,
      0x1.a617566b751c7p-2,
      0x1.484faf438331ep-2,
      0x1.0bb75a911c262p-2,
      0x1.f18df75d601b9p-3,
  };
  // 2^f, |f| <= 1/2; weighted error 2^-40.2
  static constexpr double pow_exp2[] = {
      0x1.000000000007fp+0,
      0x1.62e42fef844d7p-1,
      0x1.ebfbdff804afap-3,
      0x1.c6b08dd83de1cp-5,
      0x1.3b2ab73ee9415p-7,
      0x1.5d87442882080p-10,
      0x1.43086e7185036p-13,
      0x1.00dd484984a10p-16,
      0x1.640f5166c1b43p-20,
  };
  // log(gamma(1 + d)) / d, |d| <= 1/4; weighted error 2^-56.5
  static constexpr double lgamma_one[] = {
      -0x1.2788cfc6fb619p-1,
      0x1.a51a6625307d3p-1,
      -0x1.9a4d55beab2d7p-2,
      0x1.151322ac7d847p-2,
      -0x1.a8b9c17aa61dcp-3,
      0x1.5b40cb100c587p-3,
      -0x1.2703a1dce152dp-3,
      0x1.010b36af6a4f2p-3,
      -0x1.c806707634520p-4,
      0x1.9a01e39b85c15p-4,
      -0x1.748c307ff4fdcp-4,
      0x1.556ad10916a51p-4,
      -0x1.3b1e0d9d2892bp-4,
      0x1.2497a9ba0da44p-4,
      -0x1.1105891590d0dp-4,
      0x1.ffd9709d041cfp-5,
      -0x1.e3e668227a842p-5,
      0x1.c9c1a30a6a050p-5,
      -0x1.97da46e252c8ep-5,
      0x1.7e2f7e6447a7ap-5,
      -0x1.0d00a31372709p-4,
      0x1.08d057138a8a2p-4,
  };
};

}  // namespace ht::poly

#endif  // HARDTACK_TEMPLATES_VMATH_POLY_H
