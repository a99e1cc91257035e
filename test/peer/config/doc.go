// Package config compares how two readers decode a KubeletConfiguration file: the kubelet,
// with its loader, scheme, defaults and validation, and agent/kubeletconfig. Both sides read
// the same file, so that the comparison includes relative paths.
//
// A world is a file with up to eight fields of any name and value, valid or invalid. Some
// files have a repeated field, a field name in another case, an unknown field, another
// header, a second document, no field at all, or more bytes than our limit. In a third of the
// worlds, some fields form a group that is validated together. The facts of a world are: whether
// the file can be decoded, the rejected fields, the values of all fields that our package
// supports, the fields that our package ignores, the eviction thresholds, and the line
// numbers in our messages.
//
// The kubelet accepts some values with which it cannot work later. Our package must reject
// these values when it reads the file. They are a separate fact: see cannotWork. All eviction
// settings count as one field, because the kubelet does not report which of them is wrong.
// Worlds leave out fields whose validation depends on the machine: see leftOut. The texts of
// messages are not compared.
package config
