// Package config compares how a KubeletConfiguration is read: by the kubelet, with its
// scheme, its defaults and its validation, and by the package config of minimal-agent.
//
// A world is a file with up to five fields of any name and value, right or wrong, some
// of them twice, in another case or unknown, and now and then with another header or a
// second document. The facts are whether the file can be decoded, the fields that are
// refused, and the values of all fields that ours has.
//
// Eviction settings count as one field: the kubelet does not say which of them is
// wrong. Fields whose check depends on the machine, and those of other modules that
// ours ignores, are left out: see leftOut. What the kubelet checks later, where a
// manager starts, is not compared; the rule "values that cannot work" has the values
// that ours refuses at once.
package config
