module findface

go 1.19
