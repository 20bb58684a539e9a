"""Forecasts and integer programs by other projects' packages: reads a JSON request, prints a JSON answer."""

import json
import sys
import warnings

warnings.filterwarnings("ignore")


def versions(_):
    import highspy
    import numpy
    import pmdarima
    import statsmodels

    return {
        "highspy": highspy.__name__,
        "numpy": numpy.__version__,
        "pmdarima": pmdarima.__version__,
        "statsmodels": statsmodels.__version__,
    }


def given(request):
    """Forecasts of ARIMA(3,1,2) with given coefficients."""
    from statsmodels.tsa.arima.model import ARIMA

    forecasts = []
    for case in request["cases"]:
        model = ARIMA(case["series"], order=(3, 1, 2), trend="n")
        result = model.smooth(case["ar"] + case["ma"] + [1.0])
        forecasts.append([float(value) for value in result.forecast(request["steps"])])
    return forecasts


def fitted(request):
    """Forecasts of ARIMA(3,1,2) fitted to each training window, by both packages."""
    import pmdarima
    from statsmodels.tsa.arima.model import ARIMA

    answers = {"statsmodels": [], "pmdarima": []}
    for series in request["windows"]:
        result = ARIMA(series, order=(3, 1, 2), trend="n").fit()
        answers["statsmodels"].append([float(value) for value in result.forecast(request["steps"])])
        model = pmdarima.ARIMA(order=(3, 1, 2), with_intercept=False, suppress_warnings=True).fit(series)
        answers["pmdarima"].append([float(value) for value in model.predict(request["steps"])])
    return answers


def programs(request):
    """Objectives of integer programs by HiGHS; null where there is no solution."""
    import highspy

    objectives = []
    for program in request["programs"]:
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("mip_rel_gap", 0.0)
        counts = []
        cost = 0.0
        for cell in program["cells"]:
            count = highs.addIntegral(lb=cell["min"], ub=cell["max"])
            started = highs.addVariable(lb=0)
            highs.addConstr(started >= count - cell["replicas"])
            cost += cell["price"] * (count - cell["replicas"]) + cell["startup_price"] * started
            counts.append(count)
        cells = list(zip(program["cells"], counts))
        for row in program["rows"]:
            members = [cell["capacity"] * count for cell, count in cells
                       if cell["model"] == row["model"] and row["region"] in (None, cell["region"])]
            highs.addConstr(sum(members) >= row["demand"])
        for cap in program["caps"]:
            members = [cell["gpus"] * count for cell, count in cells
                       if cell["region"] == cap["region"] and cell["kind"] == cap["kind"]]
            if members:
                highs.addConstr(sum(members) <= cap["gpus"])
        highs.minimize(cost)
        is_optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        objectives.append(highs.getInfo().objective_function_value if is_optimal else None)
    return objectives


def main():
    request = json.load(sys.stdin)
    answer = {"versions": versions, "given": given, "fitted": fitted, "programs": programs}
    json.dump(answer[request["what"]](request), sys.stdout)


main()
