package cgroups

// SetRmdir replaces how a folder of a cgroup is removed: in an ordinary folder its
// files do not go with it.
func (c *Cgroupfs) SetRmdir(f func(string) error) { c.rmdir = f }
