// Package config compares how a KubeletConfiguration is read: by the kubelet, with its
// loader, its scheme, its defaults and its validation, and by agent/kubeletconfig.
// Both read the same file, so that relative paths are compared too.
//
// A world is a file with up to eight fields of any name and value, right or wrong, some
// of them twice, in another case or unknown, and now and then with another header or a
// second document, without any field, or longer than ours reads. In a third of the
// worlds the fields are some that are checked together. The facts are whether the file
// can be decoded, the fields that are refused, the values of all fields that ours has,
// the fields that it ignores, the eviction thresholds, and the lines that it names.
//
// What the kubelet accepts and cannot work with later is a fact of its own, see
// cannotWork: ours must refuse it with the file. Eviction settings count as one field:
// the kubelet does not say which of them is wrong. Fields whose check depends on the
// machine are left out: see leftOut. Texts are not compared.
package config
