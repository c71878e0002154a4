package pricing

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// Volume is how much of each resource an account used in a month while awake.
type Volume struct {
	MemoryMiBMillis int64 // MiB held, times milliseconds
	CPUMicros       int64
	DiskMBMillis    int64
}

// Settle returns what an account's allotment subtracts from its gross charges of a calendar month. For each
// resource, it subtracts the same share of the charge as the share of the use that is included: everything
// while the use is within the allotment. No allotment includes sleep.
func Settle(b sandbox.PriceBook, used Volume, gross sandbox.Charges) sandbox.Charges {
	const perSecond = 1000
	return sandbox.Charges{
		Memory: included(gross.Memory, used.MemoryMiBMillis, product(b.Included.MemoryGiBSeconds, perGiB*perSecond)),
		CPU:    included(gross.CPU, used.CPUMicros, product(b.Included.CPUSeconds, perSecond*perSecond)),
		Disk:   included(gross.Disk, used.DiskMBMillis, product(b.Included.DiskGBSeconds, perGB*perSecond)),
	}
}

// included returns the part of a charge that an allowance covers.
func included(charge sandbox.NanoUSD, used int64, allowance exact) sandbox.NanoUSD {
	if product(used).Cmp(allowance) <= 0 {
		return max(charge, 0)
	}
	return round(times(price(charge), per(allowance, used)))
}
